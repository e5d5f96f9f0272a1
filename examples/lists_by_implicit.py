"""Fit implicit on an exported split and write its lists: python lists_by_implicit.py FOLDER als|bpr LISTS.parquet

Needs implicit, pandas and pyarrow. FOLDER: rankbench data export DATASET --split --out FOLDER.
"""

import sys

import numpy as np
import pandas as pd
import scipy.sparse as sp
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking

folder, method, to = sys.argv[1:]
train, valid, test = (pd.read_parquet(f"{folder}/{part}.parquet") for part in ("train", "valid", "test"))
known = pd.concat([train, valid])  # as our own methods before their test
users, items = known["user"].astype("category"), known["item"].astype("category")
matrix = sp.csr_matrix((np.ones(len(known), np.float32), (users.cat.codes, items.cat.codes)))
Model = {"als": AlternatingLeastSquares, "bpr": BayesianPersonalizedRanking}[method]
model = Model(random_state=0)
model.fit(matrix, show_progress=False)
rows = users.cat.categories.get_indexer(test["user"].unique())
rows = rows[rows >= 0]  # a user without a history gets no list
best, scores = model.recommend(rows, matrix[rows], N=50, filter_already_liked_items=True)
lists = pd.DataFrame(
    {
        "user": np.repeat(users.cat.categories[rows], best.shape[1]),
        "item": items.cat.categories[best.ravel()],
        "score": scores.ravel(),
    }
)
lists.to_parquet(to)
