from array import array

class Flow:
    def __init__(
        self,
        members: int,
        supply: array[int],
        row_start: array[int],
        row_member: array[int],
        owned: array[int],
        far: array[int],
    ) -> None: ...
    def solve(self) -> array[int]: ...
