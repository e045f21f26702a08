"""The optimal representation geometry of contrastive learning, with certificates."""
