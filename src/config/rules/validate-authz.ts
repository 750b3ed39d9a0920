/** The rules of the forward-auth endpoint. */
import { isLoopbackOnly } from '../../core/listen-address.ts';
import type { Config } from '../schema/config.ts';
import { error, type Rating, warning } from './rating.ts';
import { checkTrustedRanges } from './validate-ranges.ts';

/** Everything wrong or risky in the endpoint's section. */
export function checkAuthz({ authz, listen, admin, proxy, routes }: Config): Rating[] {
  if (authz === undefined) return [];
  const found: Rating[] = [];
  const { port } = authz.address;
  if (port !== 0 && [listen.address.port, admin.address.port, proxy?.address.port].includes(port))
    found.push(
      error(['authz', 'address'], 'another listener of the gate uses this port', 'choose a separate port for the endpoint'),
    );
  if (authz.tls === undefined && !isLoopbackOnly(authz.address))
    found.push(
      warning(
        ['authz', 'address'],
        'passwords may cross the network in clear text between the proxy and this port',
        'set authz.tls, or listen on loopback next to the proxy',
      ),
    );
  const message = 'this range allows every caller, so anyone can guess passwords and claim any client address';
  found.push(...checkTrustedRanges(authz.trustedCallers, ['authz', 'trustedCallers'], message));
  if (routes.every(({ webhook }) => webhook !== undefined))
    found.push(
      warning(['authz'], 'every route verifies request bodies, which this endpoint never receives', 'add a route with basic'),
    );
  return found;
}
