"""The network: named encoders, heads and label spaces. What training trains and a model serves."""

from megalabel.network.gradcache import GradientCache
from megalabel.network.network import Network
from megalabel.network.spaces import LabelSpace

__all__ = ["GradientCache", "LabelSpace", "Network"]
