"""Search settings of implicit on the validation set of an exported split, and write the lists of the best model for test.

    python search_implicit.py FOLDER als|bpr SECONDS LISTS.parquet

Needs implicit, pandas and pyarrow. FOLDER: rankbench data export DATASET --split --out FOLDER. SECONDS are of the processor,
as a leaderboard counts them: one thread, 64 factors, the defaults first, and then settings drawn at random. The lists are of a
model that was fitted on train: rankbench evaluate DATASET LISTS.parquet --fit-on train
"""

import sys
import time

import numpy as np
import pandas as pd
import scipy.sparse as sp
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking
from threadpoolctl import threadpool_limits

folder, method, seconds, to = sys.argv[1:]
train, valid, test = (pd.read_parquet(f"{folder}/{part}.parquet") for part in ("train", "valid", "test"))
users, items = train["user"].astype("category"), train["item"].astype("category")
X = sp.csr_matrix((np.ones(len(train), np.float32), (users.cat.codes, items.cat.codes)))
rng = np.random.default_rng(0)


def between(low, high):
    """A number drawn evenly on the logarithmic scale."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def drawn():
    if method == "als":
        return {"regularization": between(1e-3, 1e2), "alpha": between(0.5, 100), "iterations": int(between(5, 40))}
    return {"learning_rate": between(3e-3, 0.3), "regularization": between(1e-4, 0.3), "iterations": int(between(30, 1000))}


def fitted(values):
    Model = {"als": AlternatingLeastSquares, "bpr": BayesianPersonalizedRanking}[method]
    model = Model(factors=64, num_threads=1, random_state=0, **values)
    model.fit(X, show_progress=False)
    return model


def lists(model, part, k):
    rows = users.cat.categories.get_indexer(part["user"].unique())
    rows = rows[rows >= 0]
    return rows, *model.recommend(rows, X[rows], N=k, filter_already_liked_items=True)


def ndcg(model, k=20):
    """Mean nDCG@k on the validation set."""
    rows, best, _ = lists(model, valid, k)
    pairs = users.cat.categories.get_indexer(valid["user"]), items.cat.categories.get_indexer(valid["item"])
    inside = (pairs[0] >= 0) & (pairs[1] >= 0)
    target = sp.csr_matrix((np.ones(inside.sum()), (pairs[0][inside], pairs[1][inside])), X.shape)
    discount = 1 / np.log2(np.arange(2, k + 2))
    hits = np.array([target[row, one].toarray().ravel() for row, one in zip(rows, best, strict=True)])
    # Items of the validation set that train does not have count for the best list, too.
    n_targets = valid.groupby("user").size().reindex(users.cat.categories[rows]).to_numpy()
    return float(np.mean(hits @ discount / np.cumsum(discount)[np.minimum(n_targets, k) - 1]))


with threadpool_limits(1):
    best, values, tried = (-1.0, {}, None), {}, 0
    while (spent := time.process_time()) < float(seconds) or not tried:
        model = fitted(values)
        found = ndcg(model)
        tried += 1
        if found > best[0]:
            best = found, values, model
        values = drawn()
print(f"{tried} settings in {spent:.0f} s; nDCG@20 on valid {best[0]:.4f} with {best[1] or 'the defaults'}")
rows, of_users, scores = lists(best[2], test, min(150, X.shape[1]))  # of which those of valid are left out
pd.DataFrame(
    {
        "user": np.repeat(users.cat.categories[rows], of_users.shape[1]),
        "item": items.cat.categories[of_users.ravel()],
        "score": scores.ravel(),
    }
).to_parquet(to)
