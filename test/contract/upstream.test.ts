import { createUpstream } from '../../src/forward/pool.ts';
import { describeUpstream } from './upstream.contract.ts';

describeUpstream('pool', createUpstream);
