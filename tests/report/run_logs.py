"""Logs of training runs for the tests of reports, made up as docs/log.md describes them. The numbers come from a
fixed random stream, so that a failure can be repeated."""
import json
import math
import random

# Texts that a page must not treat as markup or code, and texts that are often damaged on the way: ends of elements,
# comments, quotes, line separators that scripts know, both directions, letters outside the first plane.
NASTY = ("</script><script>window.broken=1</script><!--<script>]]>\"'`${1}&lt;&#60;<img src=x onerror=window.broken=1>"
         "\u2028\u2029\u202e\t\\u003c\U0001f600 é {{document}} {{script}}")


def line(**event):
    return json.dumps(event, ensure_ascii=False) + "\n"


def start(**more):
    event = {"event": "start", "cflux": "0.2.0", "time": "2026-11-21T20:00:00Z", "loss": "logitcrossentropy",
             "model": "Chain(Conv((3, 3), 1 => 4, relu), MaxPool((2, 2)), Flux.flatten, Dense(64 => 10))",
             "optimiser": "Adam(0.001)", "device": "cpu", "seed": 1, "epochs": 20, "batchsize": 32, "parameters": 690,
             "data": {"path": "data/digits.csv.gz", "kind": "csv", "observations": 1797, "train": 1438,
                      "validation": 359, "target": "digit", "classes": [str(i) for i in range(10)]}}
    event.update(more)
    return line(**event)


def steps(count, epochs=20, shared=1, seed=1):
    """Lines of training steps and epochs. shared: number of training steps per line."""
    stream, text, seconds, done = random.Random(seed), [], 0.0, 0
    per_epoch = max(1, count // epochs)
    for i in range(count):
        seconds += shared * (0.002 + stream.expovariate(2000))
        done += shared
        loss = 2.3 * math.exp(-5 * i / count) + 0.02 + abs(stream.gauss(0, 0.1))
        event = {"event": "step", "step": done, "epoch": i // per_epoch + 1, "loss": round(loss, 8), "seconds": round(seconds, 7)}
        if shared > 1:
            event.update(steps=shared, least=round(loss * 0.7, 8), most=round(loss * 1.6, 8))
        text.append(line(**event))
        if (i + 1) % per_epoch == 0 or i + 1 == count:
            seconds += 0.05
            part = (i + 1) / count
            text.append(line(event="epoch", epoch=i // per_epoch + 1, step=done, loss=2 * (1 - part) + 0.1, seconds=round(seconds, 7),
                             validation_loss=2 * (1 - part) + 0.2 * part, accuracy=round(0.1 + 0.88 * part, 6)))
    return "".join(text)


def sample(number, side=8, channels=1, classes=10):
    stream = random.Random(number)
    output = [0.01] * classes
    output[number % classes] = 1 - 0.01 * (classes - 1)
    shape = [side, side] if channels == 1 else [side, side, channels]
    return {"input": [round(stream.random() * 3 - 1, 5) for _ in range(side * side * channels)], "shape": shape,
            "target": number % classes if number != 5 else 3, "output": output}


def end(count=12, side=8, **more):
    confusion = [[35 if i == j else int((7 * i + 3 * j) % 11 == 0) for j in range(10)] for i in range(10)]
    layers = [{"layer": "Conv((3, 3), 1 => 4, relu)", "output": [6, 6, 4, 32], "parameters": 40, "bytes": 160, "seconds": 1e-4},
              {"layer": "MaxPool((2, 2))", "output": [3, 3, 4, 32], "parameters": 0, "bytes": 0, "seconds": 2e-5},
              {"layer": "PairwiseFusion(+, a, b)", "output": [[5, 32], [7, 32]], "parameters": 0, "bytes": 0, "seconds": 1e-5},
              {"layer": "Dense(64 => 10)", "output": [10, 32], "parameters": 650, "bytes": 2600, "seconds": 3e-5}]
    event = {"event": "end", "why": "finished", "step": 1000, "seconds": 20.5, "confusion": confusion, "layers": layers,
             "classes": [str(i) for i in range(10)], "samples": [sample(i, side) for i in range(count)]}
    event.update(more)
    return line(**event)


def nasty():
    """A log all of whose texts are NASTY."""
    names = [NASTY + str(i) for i in range(3)]
    data = {"path": NASTY, "kind": NASTY, "target": NASTY, "classes": names, NASTY: NASTY}
    samples = [{**sample(i, classes=3), "target": i} for i in range(2)]
    samples.append({"input": [1, None, 2.5], "shape": [3], "target": 1, "output": [0.5, 0.25, 0.25]})
    return "".join([
        start(model=NASTY, loss=NASTY, optimiser=NASTY, device=NASTY, time=NASTY, data=data, **{NASTY: [NASTY, {NASTY: NASTY}]}),
        line(event=NASTY), steps(30, 3),
        line(**{"event": "epoch", "epoch": 4, "step": 40, "loss": 1, NASTY: 2.5}),
        line(event="end", why=NASTY, message=NASTY, step=40, seconds=1, confusion=[[1, 0, 0], [0, 2, 0], [0, 1, 3]], classes=names,
             samples=samples, layers=[{"layer": NASTY, "output": [3, 32], "parameters": 3, "bytes": 12}])])
