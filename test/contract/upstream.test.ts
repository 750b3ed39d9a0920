import { createUpstream } from '../../src/gateway/upstream/pool.ts';
import { describeUpstreamConnections } from './upstream-connections.contract.ts';
import { describeUpstreamFailures } from './upstream-failures.contract.ts';
import { describeUpstreamResponses } from './upstream-responses.contract.ts';

describeUpstreamResponses('pool', createUpstream);
describeUpstreamFailures('pool', createUpstream);
describeUpstreamConnections('pool', createUpstream);
