"""The order in which tasks are played."""

from dataclasses import dataclass

from alfworld_rl.envs.tasks import TaskOrder, spread, tasks_hash


@dataclass(frozen=True)
class Task:
    game_id: str
    split: str = "train"
    task_type: str = "find"


TASKS = [Task(f"task {number}") for number in range(10)]


def test_every_epoch_has_every_task_once_in_an_order_of_its_own():
    order = TaskOrder(TASKS, seed=1)
    first, position = order.take(0, 10)
    second, _ = order.take(position, 10)
    assert position == 10
    assert sorted(first, key=TASKS.index) == sorted(second, key=TASKS.index) == TASKS
    assert first != second


def test_a_position_is_all_that_the_rest_depends_on():
    whole, _ = TaskOrder(TASKS, seed=1).take(0, 9)
    _, position = TaskOrder(TASKS, seed=1).take(0, 5)
    rest, end = TaskOrder(TASKS, seed=1).take(position, 4)
    assert (rest, end) == (whole[5:], 9)
    assert TaskOrder(TASKS, seed=2).take(0, 9)[0] != whole


def test_no_task_is_taken_twice_over_the_end_of_an_epoch():
    for position in range(30):
        taken, after = TaskOrder(TASKS, seed=3).take(position, 8)
        assert len(set(taken)) == 8
        assert after >= position + 8


def test_there_are_not_more_tasks_than_there_are():
    order = TaskOrder(TASKS[:3], seed=1)
    assert len(order.take(0, 5)[0]) == 3
    without, _ = order.take(0, 3, without=TASKS[:1])
    assert sorted(without, key=TASKS.index) == TASKS[1:3]
    assert order.take(0, 3, without=TASKS)[0] == []


def test_a_few_tasks_are_spread_over_the_list():
    assert spread(TASKS, None) == spread(TASKS, 10) == TASKS
    assert spread(TASKS, 3) == [TASKS[0], TASKS[3], TASKS[6]]


def test_a_hash_tells_lists_apart():
    assert tasks_hash(TASKS) == tasks_hash(list(TASKS)) != tasks_hash(TASKS[::-1])
    assert len(tasks_hash(TASKS)) == 16
