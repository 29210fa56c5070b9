"""What runs on the nodes of a Ray cluster: programs, and workers."""

from gymq.ext.ray.sandbox import Ray as Ray
