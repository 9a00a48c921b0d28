"""How a kernel's work is divided, for any extents: functions that exported files have, too.

They say what the library's planner says (src/cuda/launch/rows.cc, src/cuda/launch/columns.cc); launches name
them in the values they describe (LaunchDescription in src/cuda/launch/kernel.h).
"""

import functools
import math

__all__ = ["divide_rows", "divide_tiles"]


@functools.cache
def divide_rows(units, chunks, blocks, warps, ring, step_bytes, single=False, again=True, is_long=False):  # type: ignore[no-untyped-def]
    """Blocks of a team, teams at work, and chunks of a warp, of the least cost.

    Costs are in the time in which a multiprocessor reads 16 KB, fitted to an H200. `ring`: chunks of a warp
    that shared memory holds; `single`: one sweep keeps none; `again`: others may be read again, from L2;
    `is_long`: chunks of many vectors.
    """
    piece, again_cost, least_room = (0.955, 0.75, 3) if is_long else (1, 0.43, 4)
    best = (float("inf"), 1, 1, 1)
    for team in range(1, blocks + 1):
        teams, steps = min(blocks // team, units), -(-chunks // (team * warps))
        kept = steps if single and ring else min(steps, ring)
        if (team - 1) * warps * steps >= chunks or (kept < steps and not again):
            continue  # a block without elements, or a unit that does not fit
        rounds, reading = -(-units // teams), step_bytes / 16384 * piece * steps
        room = ring if single else ring - kept
        no_room = 1.5 if is_long and kept == steps else 0.5
        merging = (0.4 if team == 1 else 2.4) + (no_room if room < least_room and rounds > 1 else 0)
        cost = rounds * (reading * (1 + again_cost * (1 - kept / steps)) + merging) + 0.27 * reading
        best = min(best, (cost + (0 if team == 1 else 1.3), team, teams, steps))
    return best[1:]


def divide_tiles(tiles, blocks):  # type: ignore[no-untyped-def]
    """Tiles of a block, of `blocks` that run at once, and blocks that merge their sums together."""
    block_tiles = -(-tiles // blocks)
    return block_tiles, math.isqrt(-(-tiles // block_tiles) - 1) + 1
