"""Whether results may stand side by side, and what changed from one to the next."""

from collections.abc import Mapping, Sequence

from alfworld_rl.config import differences
from alfworld_rl.evaluation.compare import Change, compare
from alfworld_rl.evaluation.results import Results


def mismatches(results: Mapping[str, Results]) -> list[str]:
    """Why these results cannot be compared, a sentence each; empty where they can.

    They must share the base model, the games (and their content, where hashes are known), the prompt protocol
    and the settings that change a score. What a file does not say is not held against it.
    """
    (first_label, first), *others = results.items()
    problems = []
    for label, other in others:
        if other.base_model != first.base_model:
            problems.append(f"{label} is of base model {other.base_model}, {first_label} of {first.base_model}")
        problems += _other_games(first_label, first, label, other)
        if first.protocol and other.protocol and first.protocol != other.protocol:
            problems.append(f"{label} was played under another prompt protocol than {first_label}")
        if first.settings and other.settings and (changed := differences(first.settings, other.settings)):
            problems.append(f"{label} was played with other settings than {first_label}: {', '.join(changed)}")
    return problems


def comparisons(before_label: str, before: Results, after_label: str, after: Results) -> list[str]:
    """What changed game by game, a sentence each; nothing where the files do not hold trajectories of the same games.

    Success with one trajectory a game is tested by McNemar's exact test; with several, and for steps and reward, by
    the randomization test on the games' means.
    """
    if not before.rows or _games(before) != _games(after):
        return []
    pair = f"{before_label} -> {after_label}"
    return [_sentence(pair, before_label, after_label, change) for change in compare(before, after).changes.values()]


def _sentence(pair: str, before_label: str, after_label: str, change: Change) -> str:
    p_value = (
        f"p = {change.p_value:.3g} ({'a significant difference' if change.significant else 'not significant at 5%'})"
    )
    if change.gained is not None and change.lost is not None:
        return (
            f"{pair}: {change.mean_change:+.1%} on the same {change.games} games; "
            f"{len(change.gained)} won only by {after_label}, {len(change.lost)} only by {before_label}; "
            f"McNemar's exact {p_value}"
        )
    amount = f"{change.mean_change:+.1%}" if change.what == "success" else f"{change.mean_change:+.2f} {change.what}"
    return f"{pair}: {amount} a game on the same {change.games} games; randomization test {p_value}"


def _other_games(first_label: str, first: Results, label: str, other: Results) -> list[str]:
    if first.rows and other.rows:
        missing = sorted(_games(first) - _games(other))
        extra = sorted(_games(other) - _games(first))
        if missing or extra:
            example = (missing or extra)[0]
            return [
                f"{label} is of other games than {first_label}: {len(missing)} are missing and {len(extra)} are extra, "
                f"for example {example}"
            ]
    elif (ours := _counts(first)) != (theirs := _counts(other)):
        return [f"{label} is of other games than {first_label}: {theirs}, not {ours}"]
    shared = first.game_hashes.keys() & other.game_hashes.keys()
    changed = sorted(game for game in shared if first.game_hashes[game] != other.game_hashes[game])
    return [f"{label} was played on changed files of {len(changed)} games, for example {changed[0]}"] if changed else []


def _games(results: Results) -> set[str]:
    return {row.game_id for row in results.rows}


def _counts(results: Results) -> str:
    return ", ".join(f"{score.games} {split}" for split, score in sorted(results.scores.items()))


def table_rows(results: Mapping[str, Results]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table that `analysis` prints.

    Success by split with its interval, invalid actions, and where a model has thought, tokens of thought a step.
    """
    thinking = any(row.thought_tokens for item in results.values() for row in item.rows)
    splits: Sequence[str] = sorted({split for item in results.values() for split in item.scores})
    rows = []
    for label, item in results.items():
        cells = [label]
        for score in [*(item.scores[split] for split in splits), item.overall]:
            low, high = score.interval
            cells.append(f"{score.success_rate:.1%} [{low:.1%}, {high:.1%}]")
        cells.append(f"{item.overall.invalid_actions_mean:.2f}")
        if thinking:
            steps = sum(row.steps or 0 for row in item.rows)
            thought = sum(row.thought_tokens or 0 for row in item.rows)
            cells.append(f"{thought / steps:.1f}" if steps else "")
        rows.append(cells)
    header = ["result", *splits, "all", "invalid actions"]
    return [*header, "thought tokens a step"] if thinking else header, rows
