"""An OpenAI-compatible gateway that fits every image to the budget of its question's tier.

``app`` builds it, ``proxy`` handles requests, ``monitoring`` reports on them, ``local_server`` serves a model of this
machine behind it, ``litellm`` makes the same decisions inside a LiteLLM proxy.
"""
