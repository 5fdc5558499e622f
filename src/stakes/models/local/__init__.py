"""Run a transformers model on this machine.

``vlm`` is the entry: ``LocalVLM.answer``. ``image_cache`` opens and keeps images, ``prompt`` encodes them, selects and
deletes tokens and builds prompts, ``prefix`` shares what questions on one page have in common, ``decode`` generates.
``qwen_vl`` and ``llava_onevision`` are families with code of their own, for which on a GPU ``models.fast`` takes over
encoding and decoding. ``spliced`` runs eight more types by their own processors (``stock_processor``), ``stock`` any
other by ``generate`` and resolution alone.
"""
