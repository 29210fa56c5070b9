"""placeholder"""


class Profiler:
    def __init__(self, bus):
        pass

    async def start(self):
        pass

    async def stop(self):
        pass
