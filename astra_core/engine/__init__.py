"""How a model runs: caches, packed trees and products, each way found to agree by numbers."""
