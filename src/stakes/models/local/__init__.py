"""Run a transformers model on this machine.

``vlm`` is the entry: ``LocalVLM.answer``. ``image_cache`` opens and keeps images, ``prompt`` encodes them, selects and
deletes tokens and builds prompts, ``prefix`` shares what questions on one page have in common, ``decode`` generates.
``qwen_vl`` and ``llava_onevision`` are the families. On a GPU ``models.fast`` takes over encoding and decoding.
"""
