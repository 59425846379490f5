# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Communicators that grow by processes that join them, and what can fail then.

GrowRank.cpp has the steps that a rank is given. Deadlines of processes are
generous; what must be quick is set by CONCORD_CONNECT_TIMEOUT, 15 s, against
which a failure that is seen at once is told apart.
"""

import pathlib
import re
import secrets
import signal
import subprocess
import time
import uuid

import pytest
from test_runtime_faults import (ABORTED, BROKEN, BUILD, DIED, OK, TAKEN, TIMEOUT, WRONG_WORLD,
                                 clean_environment)

RANK = BUILD / "bin" / "unit" / "grow-rank"
MISMATCH = 48
SECONDS = 60


def unique_id():
    """What concord_unique_id_create makes, as hex digits."""
    return (b"concord1" + secrets.token_bytes(16)).ljust(128, b"\0").hex()


class Rank:
    """A process; members of the first job get the environment of torchrun."""

    def __init__(self, steps, rank=None, world=None, job=None, **env):
        if rank is not None:
            env = dict(RANK=rank, WORLD_SIZE=world, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=world,
                       MASTER_ADDR="localhost", MASTER_PORT="29500",
                       TORCHELASTIC_RUN_ID=job) | env
        self.process = subprocess.Popen([RANK, *steps.split()], env=clean_environment(**env),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1)
        self.head = ""

    def until(self, line):
        """Read on until the rank has printed a line that begins so."""
        for text in self.process.stdout:
            self.head += text
            if text.startswith(line):
                return
        raise AssertionError(f"no '{line}' in:\n{self.head}")

    def until_inside(self, jobs):
        """Wait until it has mapped the memory of so many jobs."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with open(f"/proc/{self.process.pid}/maps", encoding="utf-8") as file:
                if len(set(re.findall(r" (\d+) +/memfd:concord-job", file.read()))) >= jobs:
                    return
            time.sleep(0.005)
        raise AssertionError("it has not come into the job")

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def wait(self):
        try:
            rest, _ = self.process.communicate(timeout=SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
        self.words = self.head + (rest or "")
        return self.process.returncode

    def found(self, pattern):
        return re.findall(pattern, self.words, re.M)


def members(world, steps, own=None, **env):
    """The ranks of a first job; `own` has the steps of single ones."""
    job = uuid.uuid4().hex
    return [Rank("launched " + (own or {}).get(rank, steps), rank, world, job, **env)
            for rank in range(world)]


def joiner(rank, world, name, steps="digest leave", **env):
    return Rank(f"join:{rank}:{world}:{name} {steps}", **env)


def finish(*ranks):
    codes = [rank.wait() for rank in ranks]
    return codes, "\n".join(f"-- {i}:\n{rank.words}" for i, rank in enumerate(ranks))


def digests(ranks):
    """By (size, rank); all that say something of one must say the same."""
    values = {}
    for rank in ranks:
        for number, size, value in rank.found(r"^digest (\d+) (\d+) (\w+)$"):
            assert values.setdefault((int(size), int(number)), value) == value
    return values


@pytest.fixture(scope="module")
def fresh():
    """Digests of jobs that were started with so many ranks."""
    values = {}
    for world in (1, 2, 3, 4):
        ranks = members(world, "digest leave")
        codes, words = finish(*ranks)
        assert codes == [OK] * world, words
        values |= digests(ranks)
    return values


@pytest.mark.parametrize("old,new", [(1, 2), (2, 4), (2, 3)])
def test_grown_is_as_good_as_fresh(fresh, old, new):
    """The same bits as in a job of that size; the parent works as before."""
    name = unique_id()
    ranks = members(old, f"reduce grow:{new}:{name} digest destroy digest leave")
    ranks += [joiner(rank, new, name) for rank in range(old, new)]
    codes, words = finish(*ranks)
    assert codes == [OK] * new, words
    assert digests(ranks) == {key: value for key, value in fresh.items()
                              if key[0] in (old, new)}


def test_grows_twice_and_shrinks(fresh):
    """1 -> 2 -> 3; the last one dies; the two that are left shrink and grow."""
    first, second, third = unique_id(), unique_id(), unique_id()
    after = f"grow:3:{second} digest ?until-error shrink digest grow:3:{third} digest"
    ranks = members(1, f"grow:2:{first} digest {after}")
    ranks.append(joiner(1, 2, first, f"digest {after}"))
    ranks.append(joiner(2, 3, second, "digest line kill"))
    ranks[-1].until("step line")
    ranks[-1].go_on()
    ranks.append(joiner(2, 3, third, "digest"))
    codes, words = finish(*ranks)
    assert codes == [OK, OK, -signal.SIGKILL, OK], words
    assert len(ranks[0].found("^digest")) == 4
    for rank in ranks[:2]:
        assert rank.found("^CONCORD_ERROR_PEER_DIED: .*rank 2 "), words
    assert digests(ranks) == {key: value for key, value in fresh.items()
                              if key[0] in (2, 3)}


def test_members_keep_their_group_ranks(fresh):
    """A group of some, in another order, grows; NULL but at its rank 0."""
    name = unique_id()
    ranks = members(3, "", {0: "line leave", 1: f"group:2,1 grow:3:- digest leave",
                            2: f"group:2,1 grow:3:{name} digest leave"})
    ranks.append(joiner(2, 3, name))
    codes, words = finish(*ranks[1:])
    assert codes == [OK] * 3, words
    assert ranks[2].found("^digest 0 3") and ranks[1].found("^digest 1 3"), words
    ranks[0].go_on()
    assert ranks[0].wait() == OK
    assert digests(ranks) == {key: value for key, value in fresh.items() if key[0] == 3}


def test_joiner_that_never_comes_is_named():
    """Killed between the id and the join. The parent goes on, and grows later."""
    name, again = unique_id(), unique_id()
    ranks = members(2, f"?grow:3:{name} digest grow:3:{again} digest leave",
                    CONCORD_CONNECT_TIMEOUT=2)
    dead = Rank("kill")
    assert dead.wait() == -signal.SIGKILL
    for rank in ranks:
        rank.until("step digest")
    ranks.append(joiner(2, 3, again, CONCORD_CONNECT_TIMEOUT=2))
    codes, words = finish(*ranks)
    assert codes == [OK] * 3, words
    for rank in ranks[:2]:
        assert rank.found(r"^CONCORD_ERROR_TIMEOUT: .*rank\(s\) 2 to join"), words


def test_joiner_that_dies_while_others_are_awaited():
    name = unique_id()
    ranks = members(2, f"?grow:4:{name} digest leave")
    victim = joiner(2, 4, name)
    victim.until_inside(1)
    victim.process.kill()
    victim.wait()
    codes, words = finish(*ranks)
    assert codes == [OK, OK], words
    for rank in ranks:
        assert rank.found("^CONCORD_ERROR_PEER_DIED: .*rank 2.* died"), words


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("inside", [True, False])
def test_member_that_dies_while_it_grows(victim, inside):
    """It is named, well before the deadline; the others shrink and grow again."""
    name, again = unique_id(), unique_id()
    ranks = members(3, f"?grow:5:{name} shrink digest grow:3:{again} digest leave")
    waits = joiner(3, 5, name, CONCORD_CONNECT_TIMEOUT=2)
    for rank in ranks if inside else ():
        rank.until_inside(2)
    if not inside:
        ranks[victim].until("step grow")
    ranks[victim].process.kill()
    ranks.pop(victim).wait()
    ranks.append(joiner(2, 3, again))
    codes, words = finish(*ranks, waits)
    assert codes[:3] == [OK] * 3 and codes[3] in (ABORTED, DIED, TIMEOUT), words
    for rank in ranks[:2]:
        assert rank.found(f"^CONCORD_ERROR_PEER_DIED: .*rank {victim} "), words


def test_member_that_dies_at_any_moment():
    """Whatever the moment, the survivors agree on what they have."""
    for attempt in range(12):
        name = unique_id()
        steps = f"?grow:4:{name} ?until-error base shrink digest leave"
        ranks = members(3, steps, {1: f"kill-after:{attempt * 2500} {steps}"})
        came = joiner(3, 4, name, "?until-error", CONCORD_CONNECT_TIMEOUT=2)
        codes, words = finish(*ranks, came)
        assert codes[1] == -signal.SIGKILL
        assert codes[0] == codes[2] == OK and codes[3] in (OK, ABORTED, DIED, TIMEOUT), words
        # All have come to the same end.
        grew = ["step grow\nstep until" in rank.words for rank in (ranks[0], ranks[2])]
        assert grew[0] == grew[1], words


def test_two_joiners_of_one_rank():
    name = unique_id()
    ranks = members(1, f"grow:3:{name} digest leave")
    ranks.append(joiner(1, 3, name))
    ranks[1].until_inside(1)
    second = joiner(1, 3, name)
    codes, words = finish(second)
    assert codes == [TAKEN] and second.found("rank 1 is already taken by process"), words
    ranks.append(joiner(2, 3, name))
    codes, words = finish(*ranks)
    assert codes == [OK] * 3, words


def test_id_is_good_once():
    """Also the one that a rank came in by, and one whose attempt failed."""
    name, failed = unique_id(), unique_id()
    ranks = members(2, f"grow:3:{name} ?grow:4:{name} destroy ?grow:3:{name} "
                       f"?grow:3:{failed} ?grow:3:{failed} digest leave",
                    CONCORD_CONNECT_TIMEOUT=2)
    ranks.append(joiner(2, 3, name, f"?grow:4:{name} ?line", CONCORD_CONNECT_TIMEOUT=2))
    for rank in ranks[:2]:
        rank.until("step digest")
    late = joiner(2, 3, name, CONCORD_CONNECT_TIMEOUT=1)
    ranks[2].go_on()
    codes, words = finish(*ranks, late)
    assert codes == [OK, OK, OK, TIMEOUT], words
    assert late.found("a stale id"), words
    for rank in ranks[:2]:
        assert len(rank.found("^CONCORD_ERROR_INVALID_ARGUMENT: .*was used already")) == 3, words
    assert ranks[2].found("^CONCORD_ERROR_INVALID_ARGUMENT: .*was used already"), words


def test_joiner_of_another_size():
    """It is told why, and so are the members, which go on."""
    name = unique_id()
    ranks = members(2, f"?grow:3:{name} digest leave")
    for rank in ranks:
        rank.until_inside(2)
    ranks.append(joiner(2, 4, name))
    codes, words = finish(*ranks)
    assert codes == [OK, OK, WRONG_WORLD], words
    for rank in ranks[:2]:
        assert rank.found("^CONCORD_ERROR_WRONG_WORLD: .*wants a job of 4 ranks, "
                          "rank 0 one of 3"), words


def test_joiner_whose_settings_differ():
    name = unique_id()
    ranks = members(2, f"?grow:3:{name} digest leave")
    ranks.append(joiner(2, 3, name, CONCORD_ALGORITHM="all_reduce:0-inf:flat"))
    codes, words = finish(*ranks)
    assert codes == [OK, OK, MISMATCH], words
    for rank in ranks:
        assert rank.found("CONCORD_ERROR_MISMATCH: .*CONCORD_ALGORITHM differs"), words


def test_operation_in_flight():
    """All are told of the one that has it; without it they grow."""
    name = unique_id()
    steps = f"digest grow:3:{name} digest leave"
    ranks = members(2, "", {0: f"group:0,1 ?grow:3:{name} destroy {steps}",
                            1: f"group:0,1 receive ?grow:3:{name} cancel {steps}"})
    for rank in ranks:
        rank.until("step digest")
    ranks.append(joiner(2, 3, name))
    codes, words = finish(*ranks)
    assert codes == [OK] * 3, words
    for rank in ranks[:2]:
        assert rank.found("^CONCORD_ERROR_BUSY: .*at its rank 1: operations are in flight")


def test_members_that_disagree():
    one, other = unique_id(), unique_id()
    ranks = members(2, "", {
        0: f"?grow:3:{one} ?grow:3:{one} ?grow:2:{one} ?grow:65:{one} ?grow:3:- digest leave",
        1: f"?grow:4:{one} ?grow:3:{other} ?grow:2:{one} ?grow:65:{one} ?grow:3:- digest leave"})
    codes, words = finish(*ranks)
    assert codes == [OK, OK], words
    for rank in ranks:
        said = rank.found("^CONCORD_ERROR_(.*)$")
        assert "MISMATCH" in said[0] and "0 wants 3 ranks, its rank 1 4" in said[0], words
        assert "MISMATCH" in said[1] and "0 and 1 were given different" in said[1], words
        assert "INVALID_ARGUMENT" in said[2] and "can grow to 64 at most" in said[2], words
        assert "INVALID_ARGUMENT" in said[3] and "65 were asked for" in said[3], words
        assert "INVALID_ARGUMENT" in said[4] and "rank 0 needs a unique id" in said[4], words


def test_joiner_that_waits_is_told_why():
    name = unique_id()
    ranks = members(2, "", {0: f"?grow:3:{name} digest leave",
                            1: f"line ?grow:4:{name} digest leave"})
    came = joiner(2, 3, name)
    end = time.monotonic() + SECONDS
    # The one that listens, and the joiner's connection to it.
    while pathlib.Path("/proc/net/unix").read_text().count(name[16:48]) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    ranks[1].go_on()
    codes, words = finish(*ranks, came)
    assert codes == [OK, OK, MISMATCH], words
    assert came.found("rank 0 refused this process as rank 2: .*does not grow: its rank 0 "
                      "wants 3 ranks, its rank 1 4"), words


def test_broken_does_not_grow():
    name = unique_id()
    ranks = members(3, f"?until-error ?grow:4:{name} shrink grow:3:{name} digest leave",
                    {1: "reduce kill"})
    ranks.pop(1).wait()
    for rank in ranks:
        rank.until("step shrink")
    ranks.append(joiner(2, 3, name))
    codes, words = finish(*ranks)
    assert codes == [OK] * 3, words
    for rank in ranks[:2]:
        assert rank.found("^CONCORD_ERROR_BROKEN: communicator 'world' is broken"), words


def test_late_traffic_of_the_old_job_does_not_arrive(fresh):
    """A rank stops inside an operation; the others replace it and go on. What it
    then still writes does not reach them, and it learns that it is out."""
    name = unique_id()
    steps = f"reduce ?until-error group:0,1 grow:3:{name} digest line digest leave"
    ranks = members(3, steps, {2: "reduce stop until-error"}, CONCORD_TIMEOUT="0.5")
    late = ranks.pop()
    ranks.append(joiner(2, 3, name, "digest line digest leave", CONCORD_TIMEOUT=15))
    for rank in ranks:
        rank.until("step line")
    late.process.send_signal(signal.SIGCONT)
    codes, words = finish(late)
    assert codes[0] in (BROKEN, TIMEOUT), words
    for rank in ranks:
        rank.go_on()
    codes, words = finish(*ranks)
    assert codes == [OK] * 3, words
    assert all(len(rank.found("^digest")) == 2 for rank in ranks)
    assert digests(ranks) == {key: value for key, value in fresh.items() if key[0] == 3}


def test_issue_logs_of_both_jobs(tmp_path):
    """Ranks have the same numbers in both; the newer logs are in a folder below."""
    name = unique_id()
    env = dict(CONCORD_ISSUE_LOG=tmp_path / "logs")
    ranks = members(2, f"reduce grow:3:{name} reduce leave", **env)
    ranks.append(joiner(2, 3, name, "reduce leave", **env))
    codes, words = finish(*ranks)
    assert codes == [OK] * 3, words
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.issues"))
    folder = f"logs/grown-{name[16:24]}"
    assert found == [f"{folder}/rank_{i}.issues" for i in range(3)] + \
        [f"logs/rank_{i}.issues" for i in range(2)]


def test_nothing_is_left_of_attempts():
    """Descriptors, threads and mappings after jobs that grew and that did not."""
    good = [unique_id() for _ in range(3)]
    steps = "open " + "".join(f"grow:2:{name} digest destroy "
                              f"?grow:3:{unique_id()} " for name in good) + "open leave"
    rank = members(1, steps, CONCORD_CONNECT_TIMEOUT=1)[0]
    codes, words = finish(rank, *[joiner(1, 2, name) for name in good])
    assert codes == [OK] * 4, words
    before, after = rank.found("^open (.*)$")
    assert before == after
    assert len(rank.found("^CONCORD_ERROR_TIMEOUT")) == 3, words
