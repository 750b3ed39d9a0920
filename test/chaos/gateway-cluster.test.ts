/** Both ends of sidegate under overlapping faults, with a Cluster; judged from the ledger of the app. */
import { startClusterStore } from './cluster-store.ts';
import { testSurvival } from './survive.ts';

testSurvival('a Cluster', 0.25, startClusterStore);
