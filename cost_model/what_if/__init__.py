"""What stored calls would have cost under other prices, cache lifetimes, pings, speeds, hand-overs or memory.

Nothing is run: every lane is replayed call by call. What a replay cannot know it takes as it was measured: how a lane
grew, what its models wrote, which entries the provider evicted early, and which parallel calls raced.
"""
