"""Fit LensKit on an exported split and write its lists: python lists_by_lenskit.py FOLDER LISTS.parquet

Needs lenskit. FOLDER: rankbench data export DATASET --split --format lenskit --out FOLDER.
"""

import sys

import pandas as pd
from lenskit import topn_pipeline
from lenskit.batch import recommend
from lenskit.data import from_interactions_df
from lenskit.knn import ItemKNNScorer

folder, to = sys.argv[1:]
train, valid, test = (pd.read_parquet(f"{folder}/{part}.parquet") for part in ("train", "valid", "test"))
data = from_interactions_df(pd.concat([train, valid]))  # as our own methods before their test
pipeline = topn_pipeline(ItemKNNScorer(max_nbrs=50, feedback="implicit"))
pipeline.train(data)
lists = recommend(pipeline, test["user_id"].unique(), n=50, n_jobs=1)
lists.to_df().to_parquet(to)
