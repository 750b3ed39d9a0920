/** Both ends of sidegate under overlapping faults, with a Redis under Sentinels; judged from the ledger of the app. */
import { startSentinelStore } from './stores.ts';
import { testSurvival } from './survive.ts';

testSurvival('Sentinel', 0.25, startSentinelStore);
