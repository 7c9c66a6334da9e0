"""The bundled GRPO trainer: a small, readable loop that Two Clocks watches and directs.

    from twoclocks_trainer.config import TrainConfig
    from twoclocks_trainer.loop import train

    result = train(TrainConfig(run="first", monitor="off", budget_samples=2_000))

`loop` is the place to begin reading. Importing this package imports no torch.
"""
