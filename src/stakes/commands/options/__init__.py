"""The options that commands share: samples and signals, the model, the policy and the settings of a gateway."""
