/** The operations that the console offers on the admin port, too: to look at what is sent, and to repair it. */
import type { PathParameters } from '../../http-api/api-router.ts';
import type { OpenapiOptions } from '../../http-api/openapi.ts';
import type { ApiResponse, Operation } from '../../http-api/operation.ts';
import { PATH_PARAMETERS, toDocumentOptions } from './api-document.ts';
import { toThrownProblem } from './api-errors.ts';
import type { OperationParts } from './api-parts.ts';
import { createDeliveryOperations } from './delivery-operations.ts';
import { createEndpointActions } from './endpoint-actions.ts';
import { createEndpointOperations } from './endpoint-operations.ts';
import { createEventOperations } from './event-operations.ts';
import { createRepairOperations } from './repair-operations.ts';

/** Operations, and what their document needs. */
export interface ConsoleOperations extends Pick<OpenapiOptions, 'requests' | 'responses'> {
  readonly operations: readonly Operation[];
  readonly parameters: PathParameters;
  /** Undefined for an error that is not expected. */
  readonly toThrownProblem: (thrown: unknown) => ApiResponse | undefined;
}

/** The app creates endpoints and events, and it alone has the credentials for that. */
const OFFERED: ReadonlySet<string> = new Set([
  'listEndpoints',
  'getEndpoint',
  'getEndpointStats',
  'enableEndpoint',
  'disableEndpoint',
  'rotateSecret',
  'testEndpoint',
  'listEvents',
  'listDeliveries',
  'getDelivery',
  'retryDelivery',
  'repairDeliveries',
]);

/** Builds the operations, with their paths on the provider's port. */
export function createConsoleOperations(parts: OperationParts): ConsoleOperations {
  const all = [
    ...createEventOperations(parts),
    ...createEndpointOperations(parts),
    ...createEndpointActions(parts),
    ...createDeliveryOperations(parts),
    ...createRepairOperations(parts),
  ];
  const { requests, responses } = toDocumentOptions('');
  return {
    operations: all.filter(({ id }) => OFFERED.has(id)),
    parameters: PATH_PARAMETERS,
    requests,
    responses,
    toThrownProblem,
  };
}
