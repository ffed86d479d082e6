"""Seeds that depend on what is sampled and on nothing else."""

import hashlib


def request_seed(*path: int | str) -> int:
    """The seed of the request that `path` names: (run seed, update, game, branch, turn).

    53 bits of a hash, so that it survives JSON anywhere; no order of requests, no timing and no retry changes it.
    """
    named = "\x1f".join(f"{type(part).__name__}:{part}" for part in path)
    return int.from_bytes(hashlib.blake2b(named.encode(), digest_size=8).digest()) >> 11
