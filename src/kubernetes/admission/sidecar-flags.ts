/** The arguments of the injected sidecar that affect its config. */
import { parseArgs } from 'node:util';
import type { Overrides } from '../../config/load/overrides.ts';
import { CONTAINER } from '../injector/names.ts';
import type { Injection } from '../injector/outcome.ts';
import { isRaw, listAt, textAt } from '../injector/raw.ts';

/** A placeholder for the pod's addresses, which are not known yet; any address except loopback works here (RFC 5737). */
const POD_ADDRESSES = '192.0.2.1';
const OPTIONS = {
  config: { type: 'string' },
  listen: { type: 'string' },
  admin: { type: 'string' },
  upstream: { type: 'string' },
  'app-probe': { type: 'string', multiple: true },
} as const;

/** The overrides of the container in the patch; none if there is no such container, or if it has other flags. */
export function toSidecarOverrides({ patch }: Extract<Injection, { outcome: 'injected' }>): Overrides {
  const added = patch.flatMap((operation) => ('value' in operation ? [operation.value].flat() : []));
  const container = added.find((value) => isRaw(value) && textAt(value, 'name') === CONTAINER);
  const [, ...args] = isRaw(container) ? listAt(container, 'args').map((arg) => expand(String(arg))) : [];
  try {
    const { listen, admin, upstream, 'app-probe': appProbes } = parseArgs({ args, options: OPTIONS, strict: true }).values;
    return { listen, admin, upstream, appProbes };
  } catch {
    return {};
  }
}

/** Expands like Kubernetes: `$$` is a dollar sign, `$(NAME)` the variable. */
function expand(arg: string): string {
  return arg.replace(/\$\$|\$\([^$)]*\)/g, (found) => (found === '$$' ? '$' : POD_ADDRESSES));
}
