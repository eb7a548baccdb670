"""How a model runs: caches, packed trees and products, each verified numerically."""
