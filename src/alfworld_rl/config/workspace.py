"""Where things lie on this computer: the workspace folder, and the games."""

import os
from pathlib import Path

from alfworld_rl.errors import checkout

#: The folder under a data root that holds the splits, as `alfworld-download` makes it.
RELEASE = "json_2.1.1"


def project_root() -> Path:
    """The folder that holds `08-alfworld`: here or above, else this checkout's, else here."""
    here = Path.cwd()
    above = next((folder for folder in (here, *here.parents) if (folder / "08-alfworld").is_dir()), None)
    return above or checkout() or here


def home() -> Path:
    """`08-alfworld`: where datasets, runs, results and images lie unless a flag says otherwise."""
    return project_root() / "08-alfworld"


def alfworld_games(data_root: str | os.PathLike[str] | None = None) -> Path:
    """The data root (a folder that holds json_2.1.1) whose games are played.

    In this order: `data_root`, where it is given; what the environment variable ALFWORLD_DATA names;
    `08-alfworld/datasets/alfworld`, if games lie there; `~/.cache/alfworld`, where `alfworld-download` puts them unless
    told otherwise, if games lie there; `08-alfworld/datasets/generated`, if the quick start has made games. Without
    any of these it is `08-alfworld/datasets/alfworld`, and whoever lists the games says how to get some.
    """
    if data_root is not None:
        return Path(data_root)
    named, cache = os.environ.get("ALFWORLD_DATA"), download_cache()
    # Importing alfworld sets the variable to its cache where nobody had set it: that names no choice of a person.
    if named and Path(named) != cache:
        return Path(named)
    usual = home() / "datasets" / "alfworld"
    places = [cache, usual] if named else [usual, cache]
    return next((place for place in (*places, generated_games()) if has_games(place)), usual)


def generated_games() -> Path:
    """The data root of the games that the quick start makes where there are none of ALFWorld's."""
    return home() / "datasets" / "generated"


def download_cache() -> Path:
    """Where `alfworld-download` puts games if ALFWORLD_DATA is not set. There need not be any."""
    return Path.home() / ".cache" / "alfworld"


def has_games(data_root: Path) -> bool:
    """Whether it holds the folder of the splits; not whether there is anything in it."""
    return (data_root / RELEASE).is_dir()
