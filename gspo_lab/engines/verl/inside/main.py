"""verl's trainer as a program that ends with the worker that started it, as Ray's processes end with their driver:
`python -m` this module."""

from verl.trainer.main_ppo import main

from gspo_lab.engines.orphan import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    main()
