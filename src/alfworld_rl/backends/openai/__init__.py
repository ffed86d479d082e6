"""Services and servers that speak OpenAI's protocol, through the official SDK: measured, never trained."""

from alfworld_rl.backends.openai.backend import ChatService, CompletionsService

__all__ = ["ChatService", "CompletionsService"]
