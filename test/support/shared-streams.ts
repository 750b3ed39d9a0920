import type { SharedBatch, SharedStreams } from '../../src/state/shared-streams.ts';
import type { FakeClock } from './fake-clock.ts';

/** What replicas share through a store, in memory, with the IDs that Redis would give by this clock. */
export function createSharedStreams(clock: FakeClock) {
  const batches: SharedBatch[] = [];
  const state = { isAway: false, reads: 0, watches: 0 };
  const answer = (): void => {
    if (state.isAway) throw new Error('away');
  };
  const store: SharedStreams = {
    isWatched: async () => true,
    watch: async () => {
      answer();
      state.watches++;
    },
    publish: async (_, text) => void batches.push({ id: `${clock.now()}-${batches.length}`, text }),
    read: async (_, after) => {
      state.reads++;
      answer();
      return batches.slice(1 + batches.findIndex(({ id }) => id === after));
    },
  };
  return { store, batches, state };
}
