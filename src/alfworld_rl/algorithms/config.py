"""How a model is updated, as settings."""

from typing import Annotated, Literal

from alfworld_rl.algorithms.advantages import ESTIMATORS, Estimator
from alfworld_rl.algorithms.rewards import REWARDS, Reward
from alfworld_rl.algorithms.schedules import SCHEDULES, learning_rate
from alfworld_rl.config import Config, Name, ParametersConfig, option, parameters_config
from alfworld_rl.types import AdamParams, LossSpec

EstimatorParameters = parameters_config(ESTIMATORS)
RewardParameters = parameters_config(REWARDS)


class RewardConfig(Config):
    """What a trajectory is worth."""

    reward: Annotated[str, Name(REWARDS)] = option("document", "reward")
    reward_parameters: ParametersConfig = RewardParameters()

    def conflicts(self) -> list[str]:
        return self.reward_parameters.unused(self.reward)

    def function(self) -> Reward:
        """The reward with its parameters."""
        return REWARDS.bind(self.reward, **self.reward_parameters.of(self.reward))

    def described(self) -> dict[str, object]:
        """Its name and parameters, as they go into results."""
        parameters = self.reward_parameters.of(self.reward)
        changed = {name: value for name, value in parameters.items() if value != REWARDS.parameters(self.reward)[name]}
        return {"reward": self.reward, **{f"reward_{name}": value for name, value in changed.items()}}


class OptimizerConfig(Config):
    """How weights change."""

    learning_rate: float = option(1e-6, "highest learning rate", gt=0)
    schedule: Annotated[str, Name(SCHEDULES)] = option("constant", "learning rate over the run")
    warmup_steps: int = option(0, "updates over which the learning rate rises to its full value", ge=0)
    beta1: float = option(0.9, "Adam's first decay", ge=0, le=0.999999)
    beta2: float = option(0.95, "Adam's second decay", ge=0, le=0.999999)
    weight_decay: float = option(0.0, "decoupled weight decay", ge=0)
    grad_clip_norm: float = option(1.0, "bound on the norm of the gradient; 0: none", ge=0)

    def adam(self, update: int, updates: int) -> AdamParams:
        """The optimizer's parameters for `update`, counted from 0, of a run of `updates`."""
        return AdamParams(
            learning_rate=learning_rate(
                update,
                peak=self.learning_rate,
                schedule=SCHEDULES[self.schedule],
                warmup=self.warmup_steps,
                updates=updates,
            ),
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=self.weight_decay,
            grad_clip_norm=self.grad_clip_norm,
        )


class PolicyGradientConfig(Config):
    """What is learned from trajectories."""

    advantage: Annotated[str, Name(ESTIMATORS)] = option("mean", "advantage estimator")
    estimator_parameters: ParametersConfig = EstimatorParameters()
    loss: Literal["ppo", "importance_sampling", "cispo"] = option("ppo", "policy loss")
    ppo_clip_low: float = option(0.8, "lower bound of the probability ratio", ge=0, le=1)
    ppo_clip_high: float = option(1.2, "upper bound of the probability ratio", ge=1)
    epochs: int = option(1, "passes over the data of one update", ge=1)
    minibatches: int = option(1, "optimizer steps of one pass", ge=1)
    kl_coef: float = option(0.0, "weight of the penalty for leaving the starting policy", ge=0)
    dynamic_sampling: int = option(0, "replace groups without a gradient by up to this many more games an update", ge=0)

    def conflicts(self) -> list[str]:
        return self.estimator_parameters.unused(self.advantage)

    def estimator(self) -> Estimator:
        """The advantage estimator with its parameters."""
        return ESTIMATORS.bind(self.advantage, **self.estimator_parameters.of(self.advantage))

    def loss_spec(self) -> LossSpec:
        return LossSpec(self.loss, self.ppo_clip_low, self.ppo_clip_high)
