import json, multiprocessing, os, sys, time, itertools
from pathlib import Path
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]
import torch
from fuseblock._capi import Plan
from benchmarks.gpu.gpu_timing import DEVICE, Timer, copy_rate
GS, IL, RG = "group_norm(G) | silu", "instance_norm(affine=true) | leaky_relu(0.01)", "relu | group_norm(G)"
KEYS = {
    ((1, 512, 256, 256), 32, GS, "bf16"): (16, 32),
    ((1, 128, 1024, 1024), 32, GS, "bf16"): (43, 64, 128),
    ((1, 128, 20, 256, 256), 32, GS, "bf16"): (64, 128),
    ((1, 512, 16, 180, 320), 32, GS, "bf16"): (129, 132),
    ((64, 256, 56, 56), 32, GS, "bf16"): (1,),
    ((2, 32, 128, 128, 128), 8, GS, "bf16"): (64, 128),
    ((1, 128, 20, 256, 256), 0, IL, "bf16"): (16, 32),
    ((1, 512, 256, 256), 0, IL, "bf16"): (1, 2),
    ((2, 320, 128, 128), 32, GS, "bf16"): (2, 4),
    ((16, 128, 34, 34, 34), 8, RG, "f32"): (16, 22, 33),
    ((1, 64, 256, 256), 32, GS, "f32"): (2, 4),
}
def make(cell):
    (shape, groups, block, dtype), choice = cell
    os.environ["FUSEBLOCK_ROWS"] = choice
    norm = "instance_norm" if "instance" in block else "group_norm"
    types = dict.fromkeys((norm + ".weight", norm + ".bias"), f"{dtype}[{shape[1]}]")
    return Plan.make(block.replace("G", str(groups)), f"{dtype}[{','.join(map(str, shape))}]", types, DEVICE)
def prepare(cell):
    try:
        kernels = json.loads(make(cell).explain_json())["kernels"]
        d = kernels[0]["division"]
        return f"team {d['team']} teams {d['teams']} steps {d['steps']} kept {d['kept_steps']}"
    except ValueError as e:
        return None
def cells_for():
    K = list(KEYS)
    B = "blocks=1,"
    lists = [
        [f"ahead={a},team={t},{B}pieces={p}" for a in (1, 2, 3) for t in (16, 32) for p in (2, 4)] + [f"ahead=2,team=33,{B}pieces=4", f"ahead=2,team=32,{B}pieces=4,apart=0"],
        [f"ahead={a},team=128,{B}pieces={p}" for a in (1, 2, 3) for p in (2, 4)] + [f"ahead=1,team=64,{B}pieces={p}" for p in (2, 4)] + [f"ahead=1,team=64,{B}pieces=2,threads=640", f"ahead=1,team=44,{B}pieces=2", f"ahead=3,team=128,{B}pieces=2,apart=0", f"ahead=3,team=132,{B}pieces=2"],
        [f"ahead={a},team=128,{B}pieces=2" for a in (1, 2, 3)] + [f"ahead=1,team=64,{B}pieces={p}" for p in (2, 4)] + [f"ahead=1,team=64,{B}pieces=2,threads=640", f"ahead=1,team=66,{B}pieces=2", f"ahead=1,team=64,{B}pieces=2,apart=0", f"ahead=2,team=132,{B}pieces=2"],
        [f"ahead=1,team={t},{B}pieces={p}" for t in (129, 132) for p in (2, 4)] + [f"ahead=1,team=132,{B}pieces=2,kept={k}" for k in (12, 13)] + [f"ahead=1,team=132,{B}pieces=2,lead={k}" for k in (-3, -4)] + [f"ahead=1,team=132,{B}pieces=1", f"ahead=1,team=132,{B}pieces=2,threads=640"],
        [f"ahead=1,team=1,blocks=4,pieces={p},apart={q}" for p in (1, 2) for q in (0, 1)] + [f"ahead=2,team=1,blocks=2,pieces={p}" for p in (1, 2)] + [f"ahead=1,team=1,blocks=4,pieces=2,threads=160", "ahead=1,team=1,blocks=4,pieces=2,threads=192", "ahead=0,team=1,blocks=4,pieces=2,threads=160"],
        [f"ahead=1,team=128,{B}pieces={p}" for p in (2, 4)] + [f"ahead=1,team=64,{B}pieces=4", f"ahead=2,team=128,{B}pieces=2", f"ahead=2,team=128,{B}pieces=4", f"ahead=1,team=132,{B}pieces=2"],
        [f"ahead={a},team={t},{B}pieces=2" for a in (1, 2) for t in (16, 32)],
        [f"ahead={a},team={t},{B}pieces=2" for a in (1, 2) for t in (1, 2)],
        [f"ahead={a},team={t},{B}pieces=2" for a in (1, 2) for t in (2, 4)],
        [f"ahead={a},team={t},{B}pieces=2" for a in (1, 2) for t in (16, 33)],
    ]
    return [(key, each) for key, choices in zip(K, lists) for each in ["ahead=0", *choices]]
def main():
    mode, seconds = sys.argv[1], float(sys.argv[2])
    end = time.monotonic() + seconds
    cells = cells_for()
    with multiprocessing.get_context("spawn").Pool(16) as pool:
        words = pool.map(prepare, cells, chunksize=1)
    print(mode, len(cells), "cells", f"{end - time.monotonic():.0f} s left", flush=True)
    timer = Timer()
    rate = copy_rate(timer)
    for key in KEYS:
        shape, groups, block, dtype = key
        kind = {"bf16": torch.bfloat16, "f32": torch.float32}[dtype]
        floor = 2 * kind.itemsize * torch.Size(shape).numel() / rate * 1e6
        gen = torch.Generator(DEVICE).manual_seed(1)
        rand = lambda *e: torch.randn(e, generator=gen, device=DEVICE, dtype=kind)
        x, w, b = rand(*shape), rand(shape[1]), rand(shape[1])
        f = torch.nn.functional
        norm = f.group_norm((x.relu() if block == RG else x).float(), groups or shape[1], w.float(), b.float())
        expected = (f.silu(norm) if block == GS else f.leaky_relu(norm, 0.01) if block == IL else norm).to(kind)
        del norm
        rows = []
        for cell, word in zip(cells, words):
            if cell[0] != key or word is None or time.monotonic() > end: continue
            plan = make(cell)
            name = "instance_norm" if block == IL else "group_norm"
            call = plan.bind({"x": x, name + ".weight": w, name + ".bias": b})
            call()
            out, = call.outputs.values()
            err = float((out - expected).abs().max()); first = out.clone(); out.zero_()
            us = timer(call, 8) * 1e3
            note = "" if err < 0.07 and torch.equal(first, out) else f" BAD {err}"
            rows.append((us, cell[1], word + note, err))
        print(f"{shape} {block} {dtype}: floor {floor:.1f}, errors up to {max((r[3] for r in rows), default=0):.2g}")
        for r in rows[:1] + sorted(rows[1:]):
            print(f"  {r[0]:7.1f} ({r[0] / floor:4.2f}) {r[1] or 'chosen':58} {r[2]}")
        bad = [r for r in rows if "BAD" in r[2]]
        if bad: print("BAD", bad[:5])
        sys.stdout.flush()
        with open(os.environ["OUT"] + f"/trial_{mode}.txt", "a") as f:
            for r in rows: f.write(json.dumps([key, floor, *r]) + "\n")
if __name__ == "__main__":
    main()
