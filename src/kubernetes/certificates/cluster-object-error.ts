/** Errors about objects of the cluster, with messages for the operator. */
import { toErrorText } from '../../core/errors.ts';
import { KubeError } from '../client/error.ts';

/** An object is missing, unreadable or in the wrong state. An operator can fix it while the injector runs. */
export class ClusterObjectError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'ClusterObjectError';
  }
}

/** The error for a failed request about `title`, with the reason and a fix. `rule`: the RBAC rule that the request needs. */
export function toClusterObjectError(thrown: unknown, title: string, rule: string): ClusterObjectError {
  if (thrown instanceof ClusterObjectError) return thrown;
  if (!(thrown instanceof KubeError)) return new ClusterObjectError(`${title}: ${toErrorText(thrown)}`);
  if (thrown.status === 404) return new ClusterObjectError(`${title}: not found; the chart creates it`);
  if (thrown.status === 403) return new ClusterObjectError(`${title}: forbidden; grant the service account ${rule}`);
  return new ClusterObjectError(`${title}: ${thrown.message}`);
}

/** Whether another client changed the object after it was read. */
export function isConflict(thrown: unknown): boolean {
  return thrown instanceof KubeError && thrown.status === 409;
}
