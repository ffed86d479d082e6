"""`report`: one self-contained page that shows results or a training run, and replays their trajectories."""
