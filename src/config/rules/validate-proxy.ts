/** The rules of the forward proxy. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import { parseDestinationRule } from '../../core/destination.ts';
import { isLoopbackOnly } from '../../core/listen-address.ts';
import type { Config } from '../schema/config.ts';
import { error, type Rating, warning } from './rating.ts';
import { checkUsers } from './validate-basic.ts';

/** Everything wrong or risky in the proxy's section. */
export function checkProxy({ proxy, listen, admin }: Config, now: EpochMilliseconds): Rating[] {
  if (proxy === undefined) return [];
  const found = checkUsers(proxy.basic, ['proxy', 'basic'], now);
  const { port } = proxy.address;
  if (port !== 0 && [listen.address.port, admin.address.port].includes(port))
    found.push(
      error(['proxy', 'address'], 'another listener of the gate uses this port', 'choose a separate port for the proxy'),
    );
  if (proxy.requireTls && proxy.tls === undefined)
    found.push(
      error(
        ['proxy', 'requireTls'],
        'no client can connect over TLS, so every client would be rejected',
        'set proxy.tls, or set requireTls: false for a proxy on loopback',
      ),
    );
  if (!proxy.requireTls && !isLoopbackOnly(proxy.address))
    found.push(warning(['proxy', 'requireTls'], 'passwords may cross the network in clear text', 'remove requireTls'));
  for (const [index, text] of proxy.allow.entries()) {
    if (parseDestinationRule(text) === undefined)
      found.push(
        error(['proxy', 'allow', index], `${JSON.stringify(text)} is not a destination`, 'write host:port or *.host:port'),
      );
  }
  if (proxy.allow.length === 0)
    found.push(warning(['proxy', 'allow'], 'no destination is allowed', 'list destinations as host:port'));
  if (!proxy.denyPrivate)
    found.push(warning(['proxy', 'denyPrivate'], 'an allowed name may resolve to any address in the internal network'));
  return found;
}
