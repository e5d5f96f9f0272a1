"""Search settings of another library's method on the validation set of an exported split, and write its best lists for test.

    python search_library.py FOLDER METHOD SECONDS LISTS.parquet

METHOD is implicit-als, implicit-bpr, lenskit-als or lenskit-itemknn. Needs pandas, pyarrow, threadpoolctl, and implicit or
lenskit. FOLDER: rankbench data export DATASET --split --out FOLDER. SECONDS are of the processor, as a leaderboard counts
them: one thread, 64 factors, the defaults first, and then settings drawn at random. The lists are of a model that was fitted
on train: rankbench evaluate DATASET LISTS.parquet --fit-on train
"""

import os
import sys
import time

import numpy as np
import pandas as pd
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

folder, method, seconds, to = sys.argv[1:]
train, valid, test = (pd.read_parquet(f"{folder}/{part}.parquet") for part in ("train", "valid", "test"))
users, items = train["user"].astype("category"), train["item"].astype("category")
X = sp.csr_matrix((np.ones(len(train), np.float32), (users.cat.codes, items.cat.codes)))
rng = np.random.default_rng(0)


def between(low, high):
    """A number drawn evenly on the logarithmic scale."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def of_implicit(Model, values):
    """A function that scores all items for the users of some rows."""
    model = Model(factors=64, num_threads=1, random_state=0, **values)
    model.fit(X, show_progress=False)
    return lambda rows: model.user_factors[rows] @ model.item_factors.T


def implicit_als(values):
    from implicit.als import AlternatingLeastSquares

    return of_implicit(AlternatingLeastSquares, values)


def implicit_bpr(values):
    from implicit.bpr import BayesianPersonalizedRanking

    return of_implicit(BayesianPersonalizedRanking, values)


def of_lenskit(model):
    from lenskit.data import from_interactions_df

    rows, columns = X.nonzero()
    model.train(from_interactions_df(pd.DataFrame({"user_id": rows, "item_id": columns})))
    return model


def lenskit_als(values):
    from lenskit.als import ImplicitMFScorer

    model = of_lenskit(ImplicitMFScorer(embedding_size=64, **values))
    return lambda rows: model.user_embeddings[rows] @ model.item_embeddings.T


def lenskit_itemknn(values):
    from lenskit.data import ItemList, RecQuery
    from lenskit.knn import ItemKNNScorer

    model = of_lenskit(ItemKNNScorer(feedback="implicit", **values))
    every = ItemList(np.arange(X.shape[1]))

    def scores(rows):
        histories = (ItemList(X.indices[X.indptr[row] : X.indptr[row + 1]]) for row in rows)
        found = np.stack([model(RecQuery(user_items=history), every).scores("numpy") for history in histories])
        return np.where(np.isnan(found), -1, found)  # an item without a neighbour in the history has no score

    return scores


def drawn():
    if method == "lenskit-itemknn":
        return {"max_nbrs": int(between(1, 1000))}
    if method == "lenskit-als":
        return {"regularization": between(1e-3, 1e2), "weight": between(0.5, 100), "epochs": int(between(5, 40))}
    if method == "implicit-als":
        return {"regularization": between(1e-3, 1e2), "alpha": between(0.5, 100), "iterations": int(between(5, 40))}
    return {"learning_rate": between(3e-3, 0.3), "regularization": between(1e-4, 0.3), "iterations": int(between(30, 1000))}


def lists(scores, part, k):
    """The users of a part who have a history, as rows, and the k best items of each that are not in it, with their scores."""
    rows = users.cat.categories.get_indexer(part["user"].unique())
    rows = rows[rows >= 0]
    best, values = [], []
    for some in np.array_split(rows, len(rows) // 1000 + 1):
        table = np.array(scores(some))
        table[X[some].nonzero()] = -np.inf
        best.append(np.argsort(-table, axis=1, kind="stable")[:, :k])
        values.append(np.take_along_axis(table, best[-1], axis=1))
    return rows, np.concatenate(best), np.concatenate(values)


def ndcg(scores, k=20):
    """Mean nDCG@k on the validation set."""
    rows, best, _ = lists(scores, valid, k)
    pairs = users.cat.categories.get_indexer(valid["user"]), items.cat.categories.get_indexer(valid["item"])
    inside = (pairs[0] >= 0) & (pairs[1] >= 0)
    target = sp.csr_matrix((np.ones(inside.sum()), (pairs[0][inside], pairs[1][inside])), X.shape)
    discount = 1 / np.log2(np.arange(2, k + 2))
    hits = np.array([target[row, one].toarray().ravel() for row, one in zip(rows, best, strict=True)])
    # Items of the validation set that train does not have count for the best list, too.
    n_targets = valid.groupby("user").size().reindex(users.cat.categories[rows]).to_numpy()
    return float(np.mean(hits @ discount / np.cumsum(discount)[np.minimum(n_targets, k) - 1]))


fitted = {
    "implicit-als": implicit_als,
    "implicit-bpr": implicit_bpr,
    "lenskit-als": lenskit_als,
    "lenskit-itemknn": lenskit_itemknn,
}[method]
os.environ["LK_NUM_THREADS"] = "1"
with threadpool_limits(1):
    best, values, tried = (-1.0, {}, None), {}, 0
    while (spent := time.process_time()) < float(seconds) or not tried:
        scores = fitted(values)
        found = ndcg(scores)
        tried += 1
        if found > best[0]:
            best = found, values, scores
        values = drawn()
    rows, of_users, scores = lists(best[2], test, min(150, X.shape[1]))  # of which those of valid are left out
print(f"{tried} settings in {spent:.0f} s; nDCG@20 on valid {best[0]:.4f} with {best[1] or 'the defaults'}")
inside = np.isfinite(scores)
pd.DataFrame(
    {
        "user": np.repeat(users.cat.categories[rows], of_users.shape[1])[inside.ravel()],
        "item": items.cat.categories[of_users.ravel()][inside.ravel()],
        "score": scores[inside],
    }
).to_parquet(to)
