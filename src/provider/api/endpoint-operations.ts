/** The operations on endpoints: create, show, change and delete them, rotate their secrets, enable, disable and test them. */
import { randomBytes } from 'node:crypto';
import * as z from 'zod';
import { formatDuration } from '../../config/schema/scalars.ts';
import { type EpochMilliseconds, toInstant, toOptionalInstant } from '../../core/clock.ts';
import { toFoldedName } from '../../core/head.ts';
import { type EgressRules, findUrlProblem } from '../../http/dial/endpoint-url.ts';
import { type ApiRequest, type ApiResponse, toJson } from '../../http-api/operation.ts';
import { type FieldError, toInvalid, toProblem } from '../../http-api/problem.ts';
import {
  createSigningSecret,
  findPublicKey,
  formatSigningSecret,
  parseSigningSecret,
  type SigningSecret,
} from '../../verify/sign/signing-keys.ts';
import { type Endpoint, findHeaderProblem, type SigningKey } from '../endpoints/endpoint.ts';
import type { EndpointRecord, EndpointSettings } from '../endpoints/endpoint-record.ts';
import type { ChangeResult } from '../endpoints/stored-registry.ts';
import { createEventId, type Envelope, isInboxEndpoint, OWN_METADATA, toBody } from '../events/event.ts';
import { toFailureStreak } from '../lanes/lane-state.ts';
import { define, findEnabled, type OperationParts, toAttemptView, UNKNOWN_ENDPOINT } from './api-parts.ts';
import * as schemas from './schemas.ts';

const RANDOM_ID_BYTES = 12;
/** A page ends with the endpoint that exceeds it: 250 endpoints with long URLs would have four times as much. */
const MAX_PAGE_BYTES = 256 * 1024;
const LEFT_BEHIND = 'deliveries to a deleted endpoint with this ID still wait: use another ID, or repeat this later';
const IN_CONFIG = 'this endpoint is in the config file (provider.endpoints): change it there, and reload the config';
const SEALED = 'the secrets of this endpoint cannot be decrypted (see the log); it can only be deleted';
const TENANT_FIXED =
  'the tenant of an endpoint cannot be changed, as events of the old one may be stored for it: create another endpoint';
const NO_ROOM = {
  heap: 'the endpoints of the API use as much memory as they may: delete some, or raise the memory limit (docs/sizing.md)',
  tenant:
    'the endpoints of this tenant use half of the memory for endpoints: delete some, or raise the memory limit (docs/sizing.md)',
};
const toFull = (part: keyof typeof NO_ROOM | undefined) => part && toProblem('conflict', NO_ROOM[part]);
const CHANGED = { description: 'The endpoint.', schema: schemas.endpoint, headers: ['ETag'] };
const CHANGE_PROBLEMS = ['not_found', 'conflict', 'precondition_failed', 'queue_unavailable'] as const;
/** Other replicas accept events for a deleted endpoint for a second, or for 10 behind a pooler. */
const UNTIL_ALL_KNOW_MS = [2_000, 15_000];
const TEST_TYPE = 'sidegate.test';
const TEST_DATA = { message: 'This is a test event. You can ignore it.' };
/** Old secrets that sign during their grace period; receivers bound the number of signatures that they check. */
const MAX_OLD_KEYS = 4;

export const ENDPOINT_OPERATIONS = [
  define({
    id: 'listEndpoints',
    method: 'GET',
    path: '/v1/endpoints',
    summary: 'List endpoints, and the apps of routes with `ack: onAccept`',
    query: z.strictObject(schemas.page),
    responses: { 200: { description: 'A page of endpoints.', schema: schemas.endpointPage } },
    problems: [],
    handle({ query: { limit, iterator = '' } }, parts) {
      const following = parts.receivers.list().filter(({ id }) => id > iterator);
      following.sort((one, other) => (one.id < other.id ? -1 : 1));
      const data: object[] = [];
      for (let bytes = 0; data.length < Math.min(limit, following.length) && bytes < MAX_PAGE_BYTES; ) {
        const view = toEndpointView(following[data.length] as Endpoint, parts);
        data.push(view);
        bytes += JSON.stringify(view).length;
      }
      const last = data.length < following.length ? following[data.length - 1] : undefined;
      return toJson(200, { data, iterator: last?.id ?? null, done: last === undefined });
    },
  }),
  define({
    id: 'createEndpoint',
    method: 'POST',
    path: '/v1/endpoints',
    summary: 'Create an endpoint',
    body: { schema: schemas.newEndpoint },
    responses: {
      201: { description: 'The endpoint, with its secret.', schema: schemas.createdEndpoint, headers: ['ETag', 'Location'] },
    },
    problems: ['conflict', 'queue_unavailable'],
    async handle({ body: { id = `ep_${randomBytes(RANDOM_ID_BYTES).toString('hex')}`, secret, ...settings } }, parts) {
      const { registry, queue, rules, clock, hooks } = parts;
      const errors = findSettingErrors(settings, rules);
      const key = toKey(secret, parts);
      if (errors.length > 0) return toInvalid(errors);
      if ('status' in key) return key;
      await registry.catchUp(id);
      const now = clock.now();
      // Otherwise the owner of the new endpoint would get events that were for the one before.
      const [backlog] = await queue.backlogs([id], now);
      if ((backlog?.waiting ?? 0) > 0)
        return toProblem('conflict', LEFT_BEHIND, { errors: [{ field: 'id', message: 'in use' }] });
      const record = { settings, keys: [key], disabled: undefined, enabledAt: now, createdAt: now, updatedAt: now };
      const full = toFull(registry.findFull(id, record));
      if (full !== undefined) return full;
      if (!(await registry.create(id, record)))
        return toProblem('conflict', 'there is an endpoint with this ID', { errors: [{ field: 'id', message: 'in use' }] });
      hooks.onEndpointChanged(id, 'created');
      const created = toEndpointResponse(201, registry.get(id) as Endpoint, parts, { secret: formatSigningSecret(key) });
      return { ...created, headers: { ...created.headers, Location: `/v1/endpoints/${id}` } };
    },
  }),
  define({
    id: 'getEndpoint',
    method: 'GET',
    path: '/v1/endpoints/{endpoint}',
    summary: 'Show an endpoint',
    responses: { 200: CHANGED },
    problems: ['not_found'],
    handle: ({ params: { endpoint: id = '' } }, parts) => toCurrent(id, parts),
  }),
  define({
    id: 'updateEndpoint',
    method: 'PATCH',
    path: '/v1/endpoints/{endpoint}',
    summary: 'Change settings of an endpoint',
    acceptsIfMatch: true,
    body: { schema: schemas.endpointPatch },
    responses: { 200: CHANGED },
    problems: CHANGE_PROBLEMS,
    handle: (request, parts) =>
      changeSettings(request, (settings) => mergePatch(settings, request.body as schemas.EndpointPatch), parts),
  }),
  define({
    id: 'replaceEndpoint',
    method: 'PUT',
    path: '/v1/endpoints/{endpoint}',
    summary: 'Replace all settings of an endpoint',
    acceptsIfMatch: true,
    body: { schema: schemas.endpointReplacement },
    responses: { 200: CHANGED },
    problems: CHANGE_PROBLEMS,
    handle: (request, parts) => changeSettings(request, (settings) => replaceSettings(settings, request.body), parts),
  }),
  define({
    id: 'deleteEndpoint',
    method: 'DELETE',
    path: '/v1/endpoints/{endpoint}',
    summary: 'Delete an endpoint',
    description: 'Its waiting deliveries are canceled. One with the ID of an endpoint of the config can be deleted, too.',
    acceptsIfMatch: true,
    responses: { 204: { description: 'It is deleted.' } },
    problems: CHANGE_PROBLEMS,
    async handle(request, parts) {
      const change = toChange(request, parts, true);
      if ('status' in change) return change;
      const { id, version } = change;
      const result = await parts.registry.remove(id, version);
      if (result === 'not_found' && parts.registry.get(id) !== undefined) return toProblem('conflict', IN_CONFIG);
      if (result !== 'changed') return toChangeProblem(result);
      parts.hooks.onEndpointChanged(id, 'deleted');
      // The deliveries are those of the endpoint of the config.
      if (parts.registry.get(id) !== undefined) return { status: 204 };
      // It is deleted in any case: what is not canceled is skipped later.
      const report = (thrown: unknown): void => parts.hooks.onError('deleteEndpoint', thrown);
      for (const delay of UNTIL_ALL_KNOW_MS) parts.clock.after(delay, () => cancelRemoved(id, parts).catch(report));
      await cancelWaiting(id, parts).catch(report);
      return { status: 204 };
    },
  }),
  define({
    id: 'rotateSecret',
    method: 'POST',
    path: '/v1/endpoints/{endpoint}/rotate-secret',
    summary: 'Replace the secret of an endpoint',
    description: `Deliveries are signed with the new and the old secret until the grace period is over, with at most ${MAX_OLD_KEYS} old ones.`,
    acceptsIfMatch: true,
    body: { schema: schemas.rotation, isOptional: true },
    responses: { 200: { description: 'The new secret.', schema: schemas.rotatedSecret } },
    problems: ['not_found', 'conflict', 'precondition_failed', 'queue_unavailable'],
    async handle(request, parts) {
      const { registry, clock, hooks, settings } = parts;
      const { secret, grace = settings.rotationGrace() } = request.body;
      const change = toChange(request, parts);
      if ('status' in change) return change;
      const { id, version } = change;
      const key = toKey(secret, parts);
      if ('status' in key) return key;
      const now = clock.now();
      const result = await registry.update(
        id,
        (record) => ({ ...record, keys: [key, ...toOldKeys(record.keys, now, now + grace)], updatedAt: now }),
        version,
      );
      if (result !== 'changed') return toChangeProblem(result);
      hooks.onEndpointChanged(id, 'rotated');
      return toJson(200, { secret: formatSigningSecret(key) });
    },
  }),
  define({
    id: 'enableEndpoint',
    method: 'POST',
    path: '/v1/endpoints/{endpoint}/enable',
    summary: 'Enable an endpoint',
    description: 'Also those of the config. Deliveries that were skipped meanwhile can be retried.',
    responses: { 200: CHANGED },
    problems: ['not_found', 'queue_unavailable'],
    async handle({ params: { endpoint: id = '' } }, parts) {
      const { registry, clock, hooks } = parts;
      if (await registry.enable(id, clock.now())) hooks.onEndpointChanged(id, 'enabled');
      return toCurrent(id, parts);
    },
  }),
  define({
    id: 'disableEndpoint',
    method: 'POST',
    path: '/v1/endpoints/{endpoint}/disable',
    summary: 'Disable an endpoint',
    description:
      'Also those of the config. Its waiting deliveries are canceled at once, and new ones are skipped until it is enabled again; all of them can be retried then.',
    responses: { 200: CHANGED },
    problems: ['not_found', 'queue_unavailable'],
    async handle({ params: { endpoint: id = '' } }, parts) {
      const { registry, clock, hooks } = parts;
      if (await registry.disable(id, 'manual', clock.now())) hooks.onEndpointChanged(id, 'disabled');
      // Also if it was disabled already: an earlier request may have failed here.
      if (registry.get(id)?.disabled !== undefined) await cancelWaiting(id, parts);
      return toCurrent(id, parts);
    },
  }),
  define({
    id: 'testEndpoint',
    method: 'POST',
    path: '/v1/endpoints/{endpoint}/test',
    summary: 'Send a test event to an endpoint',
    description: `Delivers an event of type ${TEST_TYPE} to this endpoint only, even if it does not select this type.`,
    body: { schema: schemas.testEvent, isOptional: true },
    responses: { 202: { description: 'The event is stored.', schema: schemas.acceptedEvent } },
    problems: ['not_found', 'conflict', 'queue_full', 'queue_unavailable'],
    async handle({ params: { endpoint = '' }, body: { data = TEST_DATA } }, { registry, queue, clock }) {
      const found = findEnabled(registry, endpoint);
      if ('status' in found) return found;
      const id = createEventId();
      const now = clock.now();
      const body = toBody({ type: TEST_TYPE, id, created: Math.floor(now / 1_000), data: data as Envelope['data'] });
      await queue.append([
        { id, type: TEST_TYPE, tenant: found.tenant, createdAt: now, body, metadata: OWN_METADATA, targets: [{ endpoint }] },
      ]);
      return toJson(202, { id, duplicate: false, endpoints: 1 });
    },
  }),
  define({
    id: 'getEndpointStats',
    method: 'GET',
    path: '/v1/endpoints/{receiver}/stats',
    summary: 'Show the backlog of an endpoint, and whether it is failing',
    responses: { 200: { description: 'The figures.', schema: schemas.endpointStats } },
    problems: ['not_found', 'queue_unavailable'],
    async handle({ params: { receiver: endpoint = '' } }, { receivers, queue, clock }) {
      const found = receivers.get(endpoint);
      if (found === undefined) return UNKNOWN_ENDPOINT;
      const now = clock.now();
      const [[backlog], [state]] = await Promise.all([queue.backlogs([endpoint], now), queue.laneStates([endpoint])]);
      const { waiting = 0, oldestDue } = backlog ?? {};
      const streak = toFailureStreak(state, found, now);
      const failing = streak && {
        failures: streak.failures,
        since: toInstant(streak.since),
        lastAttempt: streak.last && toAttemptView(streak.last),
        pausedUntil: toOptionalInstant(streak.pausedUntil),
      };
      return toJson(200, { waiting, oldestDue: toOptionalInstant(oldestDue), failing });
    },
  }),
];

function toEndpointResponse(status: number, endpoint: Endpoint, parts: OperationParts, more?: object): ApiResponse {
  const version = parts.registry.find(endpoint.id)?.version;
  const view = { ...toEndpointView(endpoint, parts), ...more };
  return toJson(status, view, version === undefined ? undefined : { ETag: `"${version}"` });
}

/** The endpoint as the API shows it: without secrets, and without the values of headers. */
function toEndpointView(endpoint: Endpoint, { registry, clock }: OperationParts): schemas.EndpointView {
  const { id, source, url, description, events, tenant, allTenants, concurrency, rateLimit, retryClientErrors } = endpoint;
  const { orderBy, disabled } = endpoint;
  const record = registry.find(id)?.record;
  const now = clock.now();
  return {
    id,
    source: isInboxEndpoint(id) ? 'inbox' : source,
    url,
    description,
    events: [...events],
    tenant,
    allTenants,
    headerNames: endpoint.headers.map(([name]) => name),
    timeout: formatDuration(endpoint.timeout),
    concurrency,
    rateLimit,
    schedule: endpoint.schedule.map(formatDuration),
    retryClientErrors: retryClientErrors === 'all' ? 'all' : [...retryClientErrors],
    orderBy,
    operational: endpoint.isOperational,
    signatures: endpoint.keys
      .filter(({ expiresAt = Number.POSITIVE_INFINITY }) => expiresAt > now)
      .map((key) => ({ version: key.version, publicKey: findPublicKey(key), expiresAt: toOptionalInstant(key.expiresAt) })),
    disabled: disabled && { at: toInstant(disabled.at), reason: disabled.reason },
    createdAt: toOptionalInstant(record?.createdAt),
    updatedAt: toOptionalInstant(record?.updatedAt),
  };
}

/** Frees the place of deliveries that can no longer be sent. */
export async function cancelWaiting(
  endpoint: string,
  { queue, clock }: Pick<OperationParts, 'queue' | 'clock'>,
  to?: EpochMilliseconds,
): Promise<void> {
  for await (const _ of queue.repair('cancel', { endpoint, to }, clock.now()));
}

/** Cancels what was accepted for an endpoint that does not exist. Later ones are for an endpoint that another replica created again. */
export async function cancelRemoved(
  endpoint: string,
  { registry, ...parts }: Pick<OperationParts, 'queue' | 'clock' | 'registry'>,
): Promise<void> {
  const to = parts.clock.now() + 1;
  await registry.catchUp(endpoint);
  if (registry.get(endpoint) === undefined && !registry.isElsewhere(endpoint)) await cancelWaiting(endpoint, parts, to);
}

/**
 * The endpoint that a request may change, and the version of it that the request requires; or the response that rejects the change.
 * `isDeletion`: also if its secrets cannot be decrypted here, or if the config hides it.
 */
function toChange(
  { params: { endpoint: id = '' }, incoming }: Pick<ApiRequest<unknown, unknown>, 'params' | 'incoming'>,
  { registry }: OperationParts,
  isDeletion = false,
): { readonly id: string; readonly version: number | undefined } | ApiResponse {
  const endpoint = registry.get(id);
  const isSealed = endpoint === undefined && registry.isElsewhere(id);
  if (isSealed && !isDeletion) return toProblem('conflict', SEALED);
  if (endpoint === undefined && !isSealed) return UNKNOWN_ENDPOINT;
  if (endpoint?.source === 'config' && !isDeletion) return toProblem('conflict', IN_CONFIG);
  const required = incoming.headers['if-match'] ?? '*';
  const version = /^"(\d{1,15})"$/.exec(required)?.[1];
  if (version === undefined && required !== '*')
    return toProblem('precondition_failed', 'If-Match is not the ETag of an endpoint: get it again, and repeat the change');
  return { id, version: version === undefined ? undefined : Number(version) };
}

function toChangeProblem(result: ChangeResult): ApiResponse {
  if (result === 'heap' || result === 'tenant') return toProblem('conflict', NO_ROOM[result]);
  if (result === 'version_mismatch')
    return toProblem('precondition_failed', 'the endpoint was changed meanwhile: get it again, and repeat the change');
  return UNKNOWN_ENDPOINT;
}

async function changeSettings(
  request: ApiRequest<unknown, unknown>,
  change: (settings: EndpointSettings) => EndpointSettings,
  parts: OperationParts,
): Promise<ApiResponse> {
  const { registry, rules, clock, hooks } = parts;
  const required = toChange(request, parts);
  if ('status' in required) return required;
  const { id, version } = required;
  const before = registry.get(id)?.schedule.join();
  let rejection: ApiResponse | undefined;
  const result = await registry.update(
    id,
    (record): EndpointRecord | undefined => {
      const settings = change(record.settings);
      rejection = findRejection(record.settings, settings, rules);
      return rejection === undefined ? { ...record, settings, updatedAt: clock.now() } : undefined;
    },
    version,
  );
  if (rejection !== undefined) return rejection;
  const endpoint = registry.get(id);
  if (result !== 'changed' || endpoint === undefined) return toChangeProblem(result);
  hooks.onEndpointChanged(id, 'updated');
  // Also if the request only repeats it: an earlier one may have failed here.
  if (before !== endpoint.schedule.join() || (request.body as Partial<schemas.EndpointPatch>).schedule !== undefined)
    await parts.queue.reschedule(id, endpoint.schedule, clock.now());
  return toEndpointResponse(200, endpoint, parts);
}

/** JSON merge patch (RFC 7396). */
function mergePatch(settings: EndpointSettings, { headers = {}, ...patch }: schemas.EndpointPatch): EndpointSettings {
  const changes = Object.entries(patch).map(([name, value]) => [name, value ?? undefined]);
  return {
    ...settings,
    ...(Object.fromEntries(changes) as Partial<EndpointSettings>),
    headers: mergeHeaders(settings.headers, headers),
  };
}

/** Names are compared as `findHeaderProblem` does, so that `x-a` replaces `X-A`. */
function mergeHeaders(headers: EndpointSettings['headers'], patch: schemas.HeaderPatch): EndpointSettings['headers'] {
  const named = new Set(Object.keys(patch).map(toFoldedName));
  const kept = Object.entries(headers).filter(([name]) => !named.has(toFoldedName(name)));
  const added = Object.entries(patch).filter((entry): entry is [string, string] => entry[1] !== null);
  return Object.fromEntries([...kept, ...added]);
}

/** Undefined members that have no default keep their value. */
function replaceSettings(settings: EndpointSettings, given: z.output<typeof schemas.endpointReplacement>): EndpointSettings {
  const { headers = settings.headers, tenant = settings.tenant, allTenants = settings.allTenants } = given;
  return { ...given, headers, tenant, allTenants };
}

function findRejection(before: EndpointSettings, after: EndpointSettings, rules: EgressRules): ApiResponse | undefined {
  const field = (['tenant', 'allTenants'] as const).find((name) => before[name] !== after[name]);
  if (field !== undefined) return toProblem('conflict', TENANT_FIXED, { errors: [{ field, message: 'cannot be changed' }] });
  const errors = findSettingErrors(after, rules);
  return errors.length > 0 ? toInvalid(errors) : undefined;
}

function findSettingErrors({ url, headers }: EndpointSettings, rules: EgressRules): FieldError[] {
  const found = { url: findUrlProblem(url, rules), headers: findHeaderProblem(Object.entries(headers)) };
  return Object.entries(found).flatMap(([field, problem]) =>
    problem === undefined ? [] : [{ field, message: `${problem.problem}; ${problem.hint}` }],
  );
}

/** A key of a request, or the response that rejects it. */
function toKey(secret: string | undefined, { findRouteOf }: OperationParts): SigningSecret | ApiResponse {
  if (secret === undefined) return createSigningSecret();
  const key = parseSigningSecret(secret);
  if ('problem' in key) return toInvalid([{ field: 'secret', message: `${key.problem}; ${key.hint}` }]);
  const route = findRouteOf(key);
  if (route === undefined) return key;
  // The owner of the endpoint could send its deliveries to the route.
  const message = `route ${route} accepts deliveries with this secret; use another one, or omit it to get a new one`;
  return toInvalid([{ field: 'secret', message }]);
}

/** The keys before a rotation, newest first: none signs longer than before, or than `until`. */
function toOldKeys(keys: readonly SigningKey[], now: number, until: number): SigningKey[] {
  return keys
    .map((key) => ({ ...key, expiresAt: Math.min(key.expiresAt ?? until, until) }))
    .filter(({ expiresAt }) => expiresAt > now)
    .slice(0, MAX_OLD_KEYS);
}

function toCurrent(id: string, parts: OperationParts): ApiResponse {
  const endpoint = parts.registry.get(id);
  return endpoint === undefined ? UNKNOWN_ENDPOINT : toEndpointResponse(200, endpoint, parts);
}
