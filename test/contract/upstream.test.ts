import { HttpClient } from '../../src/http/client/pool.ts';
import { describeUpstreamConnections } from './upstream-connections.contract.ts';
import { describeUpstreamFailures } from './upstream-failures.contract.ts';
import type { Make } from './upstream-harness.ts';
import { describeUpstreamResponses } from './upstream-responses.contract.ts';

const make: Make = (options, clock) => new HttpClient(clock).createUpstream(options);
describeUpstreamResponses('pool', make);
describeUpstreamFailures('pool', make);
describeUpstreamConnections('pool', make);
