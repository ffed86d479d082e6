"""What an agent is told of the admissible commands is enough to know them."""

from alfworld_rl.agents.texts import answer_text, opening_text
from alfworld_rl.world import Game, World


def rebuild_admissible(texts):
    """The commands that are admissible now, from the user's first text and the answers since, by `changes`."""
    commands: set[str] = set()
    for text in texts:
        block = text.rpartition("\n\n")[2].splitlines()
        if block[0] == "Admissible commands:":
            commands = set(block[1:])
        elif block[0][:2] in ("+ ", "- "):
            commands |= {line[2:] for line in block if line.startswith("+ ")}
            commands -= {line[2:] for line in block if line.startswith("- ")}
    return tuple(sorted(commands))


def test_the_exact_list_can_be_rebuilt_from_changes(real_games):
    paths = sorted((real_games / "json_2.1.1" / "valid_seen").glob("*/*/game.tw-pddl"))[::12]
    assert paths
    for number, path in enumerate(paths):
        world = World(Game.load(path))
        view = world.reset()
        texts = [opening_text(view, "changes")]
        # The walkthrough, with detours: what is offered first, last, the help, and what is refused.
        detours = (
            view.admissible_commands[number % len(view.admissible_commands)],
            "help",
            "nonsense",
            view.admissible_commands[-1],
        )
        for command in (*detours, *world.game.walkthrough):
            before, view = view.admissible_commands, world.step(command)
            texts.append(answer_text(before, view, "changes"))
            assert rebuild_admissible(texts) == view.admissible_commands


def test_full_lists_every_time_and_none_never(real_games):
    path = next((real_games / "json_2.1.1" / "valid_seen").glob("*/*/game.tw-pddl"))
    world = World(Game.load(path))
    first = world.reset()
    second = world.step("look")
    assert opening_text(first, "none") == first.observation
    assert answer_text(first.admissible_commands, second, "none") == second.observation
    listed = answer_text(first.admissible_commands, second, "full")
    assert listed == "\n".join([second.observation, "", "Admissible commands:", *second.admissible_commands])
