"""TRL's GRPOTrainer on our games: only the environment and the rows of the dataset are ours.

uv run --extra local --extra trl python examples/trl_grpo.py --data-root games --steps 1
"""

import argparse

from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer, chat_template_utils

from alfworld_rl.backends.local.builtin import path
from alfworld_rl.compat.trl import alfworld

parser = argparse.ArgumentParser()
parser.add_argument("--data-root", help="folder that holds json_2.1.1")
parser.add_argument("--steps", type=int, default=1)
parser.add_argument("--episode-steps", type=int, default=10)
parser.add_argument("--group-size", type=int, default=4)
args = parser.parse_args()

games = alfworld(data_root=args.data_root, max_episode_steps=args.episode_steps, admissible_commands="none")
tokenizer = AutoTokenizer.from_pretrained(path("alfworld-tiny-start"))
# TRL knows the templates of Qwen, Llama and others; that of the built-in policy has Qwen3.5's form of a call.
tokenizer.response_template = chat_template_utils.qwen3_5_template
trainer = GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(path("alfworld-tiny-start")),
    processing_class=tokenizer,
    args=GRPOConfig(
        output_dir="trl-output",
        max_steps=args.steps,
        learning_rate=1e-4,
        num_generations=args.group_size,
        per_device_train_batch_size=args.group_size,
        max_completion_length=4000,
        max_tool_calling_iterations=args.episode_steps,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
    ),
    train_dataset=games.dataset(),
    environment_factory=games,
)

if __name__ == "__main__":
    trainer.train()
    print(f"reward after update {trainer.state.global_step}: {trainer.state.log_history[0]['reward']:.2f}")
