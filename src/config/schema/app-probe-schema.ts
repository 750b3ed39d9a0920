/** The schema of app probes: health checks of the app that the admin port runs for the kubelet, which cannot reach loopback ports. */
import * as z from 'zod';
import { scalar } from './scalars.ts';

/** The three probes of a container. Lifecycle hooks are excluded: they have side effects, and anyone can call this endpoint. */
const APP_PROBE_KINDS = ['livez', 'readyz', 'startupz'] as const;

const CONTAINER = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
const FIELD_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** RFC 9110 §5.5, without the characters that Node refuses to send. */
const FIELD_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
const EXAMPLE = 'http://127.0.0.1:3000/healthz';

/** One probe of one container. */
export const appProbe = z.strictObject({
  container: z
    .string()
    .regex(CONTAINER, 'a container name is 1 to 63 lower-case letters, digits and dashes')
    .describe('The container that the probe belongs to.'),
  kind: z.enum(APP_PROBE_KINDS).describe('The kind of probe.'),
  url: scalar<string>(parseUrl, EXAMPLE).describe(
    'The URL to check: http://, https:// (without verifying the certificate, as the kubelet does) or tcp://host:port (connection only).',
  ),
  headers: z
    .array(
      z.strictObject({
        name: z.string().regex(FIELD_NAME, 'a header name is a token').describe('Header name; Host is allowed.'),
        value: z
          .string()
          .regex(FIELD_VALUE, 'a header value must not contain line breaks or other control characters')
          .describe('Header value.'),
      }),
    )
    .default([])
    .describe('Request headers of the probe, as in `httpGet.httpHeaders`.'),
});

/** Errors never contain the URL, because it could hold a password. */
function parseUrl(text: string): string | { readonly problem: string } {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !['http:', 'https:', 'tcp:'].includes(url.protocol) || url.hostname === '')
    return { problem: `not an http, https or tcp URL; write for example ${EXAMPLE} or tcp://127.0.0.1:3000` };
  if (url.username !== '' || url.password !== '') return { problem: 'the URL of a probe must not contain a user or password' };
  if (url.port === '0') return { problem: 'port 0 is not a valid port to connect to' };
  if (url.protocol === 'tcp:' && (url.port === '' || !['', '/'].includes(url.pathname) || url.search !== ''))
    return { problem: 'tcp:// must be followed by a host and a port only, for example tcp://127.0.0.1:3000' };
  return url.href;
}
