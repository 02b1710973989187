"""What is done to the nodes of a cluster, their disks and the lines between them, and undone again.

Each fault is one function: it does harm, waits, and makes good. Nodes are named by their place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.patience import until

from .cluster import NODES, ChaosCluster, events
from .faults import fill, injected

SYNCS = "fdatasync,fsync"
HANG_SECONDS = 4.0

ClusterFault = Callable[[ChaosCluster], Awaitable[None]]


# --- processes


async def kill_leader(cluster: ChaosCluster) -> None:
    node = await cluster.leading_node()
    node.kill()
    await asyncio.sleep(cluster.chance.choice((0.2, 3.0, 5.0)))
    await asyncio.to_thread(node.start)


async def kill_follower(cluster: ChaosCluster) -> None:
    node = cluster.nodes[await cluster.follower()]
    node.kill()
    await asyncio.sleep(cluster.chance.choice((0.2, 3.0)))
    await asyncio.to_thread(node.start)


async def kill_all(cluster: ChaosCluster) -> None:
    cluster.kill()
    await asyncio.sleep(cluster.chance.choice((0.0, 1.0)))
    await cluster.start()


async def stop_leader(cluster: ChaosCluster) -> None:
    """In good order: it hands over first."""
    node = await cluster.leading_node()
    code = await asyncio.to_thread(node.stop)
    assert code == 0, f"the node ended with {code}"
    await asyncio.to_thread(node.start)


async def pause_leader(cluster: ChaosCluster) -> None:
    node = await cluster.leading_node()
    node.pause()
    await asyncio.sleep(cluster.chance.choice((0.5, 2.0, 6.0)))
    node.go_on()


# --- lines


async def cut_off_leader(cluster: ChaosCluster) -> None:
    """Connections break, and no other comes about."""
    cluster.network.refuse(cluster.network.links_of(await cluster.leading() + 1))
    await _healed(cluster)


async def leader_is_mute(cluster: ChaosCluster) -> None:
    """It hears the others, and nothing it says arrives."""
    leader = await cluster.leading() + 1
    links = cluster.network.links_of(leader)
    cluster.network.silent.update(link for link in links if link[0] == leader)
    await _healed(cluster)


async def leader_is_deaf(cluster: ChaosCluster) -> None:
    """The others hear it, and nothing they say arrives."""
    leader = await cluster.leading() + 1
    links = cluster.network.links_of(leader)
    cluster.network.silent.update(link for link in links if link[1] == leader)
    await _healed(cluster)


async def cut_off_follower(cluster: ChaosCluster) -> None:
    follower = await cluster.follower() + 1
    links = cluster.network.links_of(follower)
    match cluster.chance.randrange(3):
        case 0:
            cluster.network.refuse(links)
        case 1:
            cluster.network.silent.update(link for link in links if link[0] == follower)
        case _:
            cluster.network.silent.update(link for link in links if link[1] == follower)
    await _healed(cluster)


async def cut_leader_from_one(cluster: ChaosCluster) -> None:
    """Both still hear the third. Both ways, or one."""
    pair = await cluster.leading() + 1, await cluster.follower() + 1
    ways = [pair, (pair[1], pair[0])]
    if cluster.chance.random() < 0.5:
        ways = [cluster.chance.choice(ways)]
    cluster.network.silent.update(ways)
    await _healed(cluster)


async def _healed(cluster: ChaosCluster) -> None:
    await asyncio.sleep(cluster.chance.choice((1.0, 4.0, 8.0)))
    cluster.network.heal()


# --- disks


async def leaders_disk_fails(cluster: ChaosCluster) -> None:
    await _disk_fails(cluster, await cluster.leading())


async def followers_disk_fails(cluster: ChaosCluster) -> None:
    await _disk_fails(cluster, await cluster.follower())


async def _disk_fails(cluster: ChaosCluster, at: int) -> None:
    """A sync fails, and what it was to put on the disk is not there afterwards, where we can see to
    that. The node stops by itself."""
    node, number = cluster.nodes[at], cluster.chance.randint(1, 20)
    async with injected(node.pid, f"{SYNCS}:error=EIO:when={number}+"):
        await until(lambda: not node.is_up(), "the node stops when its disk has failed")
    if cluster.disks:
        cluster.cut_power(at)
        cluster.power_returns(at)
    await asyncio.to_thread(node.start)


async def leaders_disk_hangs(cluster: ChaosCluster) -> None:
    """It leaves the lead to another, and may lead again afterwards."""
    at = await cluster.leading()
    node = cluster.nodes[at]
    before = events(node.log, "cluster_fit")
    hang = f"{SYNCS}:delay_enter={round(HANG_SECONDS * 1e6)}"
    async with injected(node.pid, hang):
        await until(lambda: cluster.leader() not in (-1, at), "another node leads")
        await asyncio.sleep(HANG_SECONDS)
    await until(lambda: events(node.log, "cluster_fit") > before, "the disk is well again")


async def followers_disk_hangs(cluster: ChaosCluster) -> None:
    node = cluster.nodes[await cluster.follower()]
    async with injected(node.pid, f"{SYNCS}:delay_enter={round(HANG_SECONDS * 1e6)}"):
        await asyncio.sleep(HANG_SECONDS * 1.5)


async def slow_disks(cluster: ChaosCluster) -> None:
    """Of one node, or of all."""
    some = cluster.chance.sample(range(NODES), cluster.chance.choice((1, NODES)))
    delay = cluster.chance.choice((20_000, 300_000))

    async def slow(at: int) -> None:
        async with injected(cluster.nodes[at].pid, f"{SYNCS}:delay_enter={delay}"):
            await asyncio.sleep(2)

    await asyncio.gather(*map(slow, some))


async def leaders_disk_is_full(cluster: ChaosCluster) -> None:
    """Another leads meanwhile."""
    at = await cluster.leading()
    with fill(cluster.disks[at], cluster.chance.choice((0, 64 << 10))):
        await until(lambda: cluster.leader() not in (-1, at), "another node leads")
        await asyncio.sleep(1)
        if cluster.chance.random() < 0.5:
            cluster.nodes[at].kill()
    if not cluster.nodes[at].is_up():
        await asyncio.to_thread(cluster.nodes[at].start)


async def followers_disk_is_full(cluster: ChaosCluster) -> None:
    with fill(cluster.disks[await cluster.follower()], cluster.chance.choice((0, 1 << 20))):
        await asyncio.sleep(3)


async def cut_power_of_one(cluster: ChaosCluster) -> None:
    at = cluster.chance.randrange(NODES)
    cluster.cut_power(at)
    await asyncio.sleep(cluster.chance.choice((0, 0.05, 0.5)))
    cluster.power_returns(at)
    await asyncio.to_thread(cluster.nodes[at].start)


async def cut_power_of_all(cluster: ChaosCluster) -> None:
    """One after the other in quick succession, while they go on: what each has not synced is gone,
    whatever it has told the others meanwhile."""
    for at in cluster.chance.sample(range(NODES), NODES):
        cluster.cut_power(at)
        await asyncio.sleep(cluster.chance.choice((0, 0, 0.01)))
    await asyncio.sleep(cluster.chance.choice((0, 0.05, 0.5)))
    for at in range(NODES):
        cluster.power_returns(at)
    await cluster.start()


# --- nodes come and go


async def replace_node(cluster: ChaosCluster) -> None:
    """A node is lost with its disk, the leader too, and another takes its place."""
    at = cluster.chance.randrange(NODES)
    cluster.nodes[at].kill()
    await cluster.leading()
    await cluster.replace(at)


async def grow_and_shrink(cluster: ChaosCluster) -> None:
    """From 3 to 5 nodes, one of the new ones leads, and back to 3. Sometimes a node is killed
    while there are five."""
    names = [await cluster.join(), await cluster.join()]
    await cluster.ask("transfer", names[0])
    if cluster.chance.random() < 0.5:
        at = cluster.chance.randrange(NODES)
        cluster.nodes[at].kill()
        await asyncio.sleep(1)
        await asyncio.to_thread(cluster.nodes[at].start)
        await cluster.votes(cluster.names[at])
    for name in cluster.chance.sample(names, 2):
        await cluster.remove(name)


async def move_lead(cluster: ChaosCluster) -> None:
    at = await cluster.follower()
    await cluster.votes(cluster.names[at])
    await cluster.ask("transfer", cluster.names[at])
    await until(lambda: cluster.leader() == at, "the other one leads")


CLUSTER_FAULTS: dict[str, ClusterFault] = {
    "leader-kill": kill_leader,
    "leader-cut": cut_off_leader,
    "leader-disk-hangs": leaders_disk_hangs,
    "follower-kill": kill_follower,
    "leader-mute": leader_is_mute,
    "power-cut-all": cut_power_of_all,
    "leader-stop": stop_leader,
    "leader-deaf": leader_is_deaf,
    "leader-disk-fails": leaders_disk_fails,
    "leader-pause": pause_leader,
    "follower-cut": cut_off_follower,
    "leader-disk-full": leaders_disk_is_full,
    "all-kill": kill_all,
    "leader-cut-from-one": cut_leader_from_one,
    "follower-disk-fails": followers_disk_fails,
    "power-cut": cut_power_of_one,
    "slow-disks": slow_disks,
    "follower-disk-hangs": followers_disk_hangs,
    "follower-disk-full": followers_disk_is_full,
    "node-replace": replace_node,
    "lead-move": move_lead,
    "grow-and-shrink": grow_and_shrink,
}
OF_DISKS = ("power-cut", "power-cut-all", "leader-disk-full", "follower-disk-full")
"""These need a disk of their own for each node."""
OF_STRACE = (
    *("leader-disk-hangs", "follower-disk-hangs", "slow-disks"),
    *("leader-disk-fails", "follower-disk-fails"),
)
