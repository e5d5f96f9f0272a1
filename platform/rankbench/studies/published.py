"""Published numbers of Zhang et al. (Talos, WWW 2026) that studies are compared with."""

from __future__ import annotations

# Name of the dataset here → name in the paper.
DATASETS = {
    "gowalla-talos": "Gowalla",
    "amazon-beauty": "Beauty",
    "amazon-games-talos": "Games",
    "amazon-electronics-talos": "Electronics",
    "irb-movielens-100k": "MovieLens",
}

# Table 1.1: % of pairs of lists that are inconsistent with Precision@20, Recall@20.
INCONSISTENCY = {
    "Gowalla": {"auc": (33.17, 33.89), "llpauc": (18.53, 18.65), "ndcg": (26.70, 26.88), "ndcg@20": (19.01, 18.24)},
    "Beauty": {"auc": (34.67, 35.46), "llpauc": (23.81, 22.95), "ndcg": (29.65, 29.52), "ndcg@20": (22.02, 22.55)},
    "Games": {"auc": (35.17, 34.19), "llpauc": (23.30, 22.34), "ndcg": (29.52, 28.02), "ndcg@20": (21.14, 22.21)},
    "Electronics": {"auc": (33.32, 34.58), "llpauc": (23.30, 22.25), "ndcg": (29.11, 28.53), "ndcg@20": (17.65, 17.51)},
}

# Table A.4: error of the estimated top-20 quantile.
THRESHOLD_ERROR = {
    "sl-at-k": {"Gowalla": 0.1943, "Beauty": 0.1948, "Games": 0.2028, "MovieLens": 0.1389},
    "talos": {"Gowalla": 0.0131, "Beauty": 0.0123, "Games": 0.0100, "MovieLens": 0.0059},
}

# Table F.1: seconds per epoch of MF with 1024 negatives (BPR: 1), on one RTX 4090.
SECONDS = {
    "bpr": {"Games": 1.23, "Beauty": 0.16, "Gowalla": 0.14, "Electronics": 2.18},
    "aatp": {"Games": 5.38, "Beauty": 0.54, "Gowalla": 0.68, "Electronics": 7.84},
    "recall-at-k": {"Games": 4.58, "Beauty": 0.43, "Gowalla": 0.37, "Electronics": 7.30},
    "smoothi-at-k": {"Games": 7.13, "Beauty": 0.93, "Gowalla": 0.63, "Electronics": 10.54},
    "sl": {"Games": 4.79, "Beauty": 0.42, "Gowalla": 0.31, "Electronics": 7.01},
    "bsl": {"Games": 4.56, "Beauty": 0.43, "Gowalla": 0.34, "Electronics": 7.17},
    "psl": {"Games": 4.96, "Beauty": 0.42, "Gowalla": 0.35, "Electronics": 7.15},
    "advinfonce": {"Games": 8.14, "Beauty": 0.71, "Gowalla": 1.00, "Electronics": 9.31},
    "llpauc": {"Games": 4.82, "Beauty": 0.52, "Gowalla": 0.37, "Electronics": 6.63},
    "talos": {"Games": 5.37, "Beauty": 0.54, "Gowalla": 0.43, "Electronics": 7.98},
}
