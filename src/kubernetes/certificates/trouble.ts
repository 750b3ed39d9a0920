/** What keeps the injector from its work for now, in words for whoever runs it. */
import { toErrorText } from '../../core/errors.ts';
import { KubeError } from '../client/error.ts';

/** Something that is not as it should be, and may be mended while the injector runs. */
export class Trouble extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'Trouble';
  }
}

/** Of a request to the API server: what was wanted, what came of it, and what to do about it. */
export function toKubeTrouble(thrown: unknown, wanted: string, rule: string): Trouble {
  if (thrown instanceof Trouble) return thrown;
  if (!(thrown instanceof KubeError)) return new Trouble(`${wanted}: ${toErrorText(thrown)}`);
  if (thrown.status === 404) return new Trouble(`${wanted}: it is not there; the chart makes it`);
  if (thrown.status === 403) return new Trouble(`${wanted}: not allowed; the service account needs ${rule}`);
  return new Trouble(`${wanted}: ${thrown.message}`);
}

/** Somebody else was faster: what was read is old. */
export function isConflict(thrown: unknown): boolean {
  return thrown instanceof KubeError && thrown.status === 409;
}
