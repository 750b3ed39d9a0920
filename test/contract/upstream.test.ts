import { createUpstream } from '../../src/gateway/upstream/pool.ts';
import { describeUpstreamAnswers } from './upstream-answers.contract.ts';
import { describeUpstreamConnections } from './upstream-connections.contract.ts';
import { describeUpstreamFailures } from './upstream-failures.contract.ts';

describeUpstreamAnswers('pool', createUpstream);
describeUpstreamFailures('pool', createUpstream);
describeUpstreamConnections('pool', createUpstream);
