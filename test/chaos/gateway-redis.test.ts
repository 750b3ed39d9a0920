/** Both ends of sidegate under overlapping faults, with one Redis; judged from the ledger of the app. */
import { startStandaloneStore } from './stores.ts';
import { testSurvival } from './survive.ts';

testSurvival('one Redis', 0.5, startStandaloneStore);
