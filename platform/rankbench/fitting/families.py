"""Families of methods: groups that a command or an experiment file selects as `family:NAME`.

A method declares its families where it is registered. A method of a plug-in may declare a family that is not listed here.
"""

FAMILIES = {
    "auc": "losses for a partial area under the ROC curve",
    "als": "factor models fitted by alternating least squares",
    "autoencoder": "networks that encode a user's history and decode scores of all items",
    "baseline": "rankings without a model of users",
    "debiased": "losses that subtract the positives hidden among the negatives",
    "distance": "losses on squared distances instead of products",
    "gradient": "losses trained by gradient steps on the vectors of an encoder",
    "linear": "linear item-item models, solved in closed form",
    "neighbours": "item-item models that keep a few weights per item",
    "newton": "factor models fitted by Newton's method with conjugate gradients",
    "pairwise": "losses that compare an interaction with one negative at a time",
    "pointwise": "losses that score each pair of user and item on its own",
    "rg": "quadratic surrogates of the softmax loss",
    "softmax": "the softmax loss, its samples, bounds and variants",
    "top-k": "losses for the first k ranks",
}
