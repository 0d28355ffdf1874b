"""A small network that learns a spiral: ModelBuilder, value_and_grad, and a step compiled to one program."""

import numpy as np

import volta as vt


def forward(build: vt.ModelBuilder, points: vt.Tensor) -> vt.Tensor:
    """points [N, 2] -> logits [N, 2]."""
    hidden = vt.tanh(build.linear("first", points, 64, std=0.7))
    hidden = vt.tanh(build.linear("second", hidden, 64, std=0.2))
    return build.linear("out", hidden, 2, std=0.2)


model = vt.ModelBuilder.build(forward, vt.zeros((1, 2)))


def loss(weights: dict[str, vt.Tensor], points: vt.Tensor, labels: vt.Tensor) -> vt.Tensor:
    return vt.cross_entropy(model(weights, points), labels)


def step(weights, momentum, points, labels):
    value, grads = vt.value_and_grad(loss)(weights, points, labels)
    momentum = {name: 0.9 * momentum[name] + grads[name] for name in weights}
    weights = {name: weights[name] - 0.05 * momentum[name] for name in weights}
    return weights, momentum, value


angle = np.random.default_rng(0).uniform(0.5, 6, 400)
labels = np.arange(400) % 2
turn = angle + np.pi * labels
points = vt.asarray(np.stack([angle * np.cos(turn), angle * np.sin(turn)], axis=1) / 6)
labels = vt.asarray(labels)

weights = model.init(seed=1)
momentum = {name: vt.zeros(value.shape) for name, value in weights.items()}
train = vt.compile(step, donate=(0, 1))  # the new weights take the memory of the old ones
for index in range(601):
    weights, momentum, value = train(weights, momentum, points, labels)
    if index % 150 == 0:
        print(f"step {index:3}  loss {value.item():.4f}")

right = vt.argmax(model(weights, points)).numpy() == labels.numpy()
print(f"{right.mean():.1%} of the points on the right side")
vt.save("spiral.safetensors", weights)
again = vt.load("spiral.safetensors")
print("saved and loaded: equal", all(np.array_equal(again[n].numpy(), weights[n].numpy()) for n in weights))
