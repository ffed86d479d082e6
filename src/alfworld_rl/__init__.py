"""Train a language-model agent by reinforcement learning on text-only ALFWorld, and measure what it learned."""
