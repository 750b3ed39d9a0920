/** The operations that create, show, change and delete endpoints. */
import { randomBytes } from 'node:crypto';
import * as z from 'zod';
import { type ApiRequest, type ApiResponse, defineOperation, type Operation, toJson } from '../../http-api/operation.ts';
import { type FieldError, toInvalid, toProblem } from '../../http-api/problem.ts';
import type { Endpoint } from '../endpoints/endpoint.ts';
import type { EndpointRecord, EndpointSettings } from '../endpoints/endpoint-record.ts';
import type { EndpointRules, NewKey } from '../endpoints/endpoint-rules.ts';
import type { ChangeResult } from '../endpoints/stored-registry.ts';
import { MAX_SMALL_BODY, type OperationParts } from './api-parts.ts';
import { page } from './delivery-schemas.ts';
import {
  createdEndpoint,
  type EndpointPatch,
  endpointPage,
  endpointPatch,
  endpointReplacement,
  endpoint as endpointSchema,
  newEndpoint,
} from './endpoint-schemas.ts';
import { toEndpointView, toEtag } from './endpoint-view.ts';

const RANDOM_ID_BYTES = 12;
const MAX_ENDPOINTS = 100_000;
const LEFT_BEHIND = 'deliveries to a deleted endpoint with this ID still wait: use another ID, or repeat this later';
const IN_CONFIG = 'this endpoint is in the config file (provider.endpoints): change it there, and reload the config';
const CHANGED = { description: 'The endpoint.', schema: endpointSchema, headers: ['ETag'] };
const CHANGE_PROBLEMS = ['not_found', 'conflict', 'precondition_failed', 'queue_unavailable'] as const;

/** Builds the operations. */
export function createEndpointOperations(parts: OperationParts): Operation[] {
  return [createList(parts), createCreate(parts), createGet(parts), createPatch(parts), createPut(parts), createDelete(parts)];
}

/** 404. */
export function toUnknownEndpoint(): ApiResponse {
  return toProblem('not_found', 'there is no endpoint with this ID');
}

/** The endpoint with its version. */
export function toEndpointResponse(status: number, endpoint: Endpoint, parts: OperationParts, more?: object): ApiResponse {
  const version = parts.registry.find(endpoint.id)?.version;
  const view = { ...toEndpointView(endpoint, parts), ...more };
  return toJson(status, view, version === undefined ? undefined : { ETag: toEtag(version) });
}

function createList(parts: OperationParts): Operation {
  return defineOperation({
    id: 'listEndpoints',
    method: 'GET',
    path: '/v1/endpoints',
    tag: 'Endpoints',
    summary: 'List endpoints',
    query: z.strictObject(page),
    responses: { 200: { description: 'A page of endpoints.', schema: endpointPage } },
    problems: [],
    handle({ query: { limit, iterator = '' } }) {
      const all = parts.registry.list();
      const start = all.findIndex(({ id }) => id > iterator);
      const shown = start === -1 ? [] : all.slice(start, start + limit);
      const isDone = start === -1 || start + limit >= all.length;
      const data = shown.map((endpoint) => toEndpointView(endpoint, parts));
      return toJson(200, { data, iterator: isDone ? null : (shown.at(-1)?.id ?? null), done: isDone });
    },
  });
}

function createCreate(parts: OperationParts): Operation {
  const { registry, rules, clock, hooks } = parts;
  return defineOperation({
    id: 'createEndpoint',
    method: 'POST',
    path: '/v1/endpoints',
    tag: 'Endpoints',
    summary: 'Create an endpoint',
    body: { schema: newEndpoint, maxBytes: MAX_SMALL_BODY },
    responses: { 201: { description: 'The endpoint, with its secret.', schema: createdEndpoint, headers: ['ETag', 'Location'] } },
    problems: ['conflict', 'queue_unavailable'],
    async handle({ body: { id = createEndpointId(), secret, ...settings } }) {
      const errors = findSettingErrors(settings, rules);
      const key = toKey(secret, rules);
      if (errors.length > 0) return toInvalid(errors);
      if ('status' in key) return key;
      if (registry.list().length >= MAX_ENDPOINTS) return toProblem('conflict', `there are ${MAX_ENDPOINTS} endpoints already`);
      const now = clock.now();
      // Otherwise the owner of the new endpoint would get events that were for the one before.
      const [backlog] = await parts.queue.backlogs([id], now);
      if ((backlog?.waiting ?? 0) > 0)
        return toProblem('conflict', LEFT_BEHIND, { errors: [{ field: 'id', message: 'in use' }] });
      const record = { settings, keys: [key], disabled: undefined, enabledAt: now, createdAt: now, updatedAt: now };
      if (!(await registry.create(id, record)))
        return toProblem('conflict', 'there is an endpoint with this ID', { errors: [{ field: 'id', message: 'in use' }] });
      hooks.onEndpointChanged(id, 'created');
      const created = toEndpointResponse(201, registry.get(id) as Endpoint, parts, { secret: rules.formatSecret(key) });
      return { ...created, headers: { ...created.headers, Location: `/v1/endpoints/${id}` } };
    },
  });
}

function createGet(parts: OperationParts): Operation {
  return defineOperation({
    id: 'getEndpoint',
    method: 'GET',
    path: '/v1/endpoints/{endpoint}',
    tag: 'Endpoints',
    summary: 'Show an endpoint',
    responses: { 200: CHANGED },
    problems: ['not_found'],
    handle({ params: { endpoint: id = '' } }) {
      const endpoint = parts.registry.get(id);
      return endpoint === undefined ? toUnknownEndpoint() : toEndpointResponse(200, endpoint, parts);
    },
  });
}

function createPatch(parts: OperationParts): Operation {
  return defineOperation({
    id: 'updateEndpoint',
    method: 'PATCH',
    path: '/v1/endpoints/{endpoint}',
    tag: 'Endpoints',
    summary: 'Change settings of an endpoint',
    acceptsIfMatch: true,
    body: { schema: endpointPatch, maxBytes: MAX_SMALL_BODY },
    responses: { 200: CHANGED },
    problems: CHANGE_PROBLEMS,
    handle: (request) => changeSettings(request, (settings) => mergePatch(settings, request.body as EndpointPatch), parts),
  });
}

function createPut(parts: OperationParts): Operation {
  return defineOperation({
    id: 'replaceEndpoint',
    method: 'PUT',
    path: '/v1/endpoints/{endpoint}',
    tag: 'Endpoints',
    summary: 'Replace all settings of an endpoint',
    acceptsIfMatch: true,
    body: { schema: endpointReplacement, maxBytes: MAX_SMALL_BODY },
    responses: { 200: CHANGED },
    problems: CHANGE_PROBLEMS,
    handle: (request) =>
      changeSettings(request, (settings) => ({ ...request.body, headers: request.body.headers ?? settings.headers }), parts),
  });
}

function createDelete(parts: OperationParts): Operation {
  return defineOperation({
    id: 'deleteEndpoint',
    method: 'DELETE',
    path: '/v1/endpoints/{endpoint}',
    tag: 'Endpoints',
    summary: 'Delete an endpoint',
    description: 'Its waiting deliveries are not sent.',
    acceptsIfMatch: true,
    responses: { 204: { description: 'It is deleted.' } },
    problems: CHANGE_PROBLEMS,
    async handle(request) {
      const id = request.params['endpoint'] ?? '';
      const problem = findChangeProblem(id, parts);
      if (problem !== undefined) return problem;
      const version = readIfMatch(request);
      if (typeof version === 'object') return version;
      const result = await parts.registry.remove(id, version);
      if (result !== 'changed') return toChangeProblem(result);
      parts.hooks.onEndpointChanged(id, 'deleted');
      return { status: 204 };
    },
  });
}

/** Why the endpoint cannot be changed by the API. */
export function findChangeProblem(id: string, { registry }: OperationParts): ApiResponse | undefined {
  const endpoint = registry.get(id);
  if (endpoint === undefined) return toUnknownEndpoint();
  return endpoint.source === 'config' ? toProblem('conflict', IN_CONFIG) : undefined;
}

/** The response to a change that was not made. */
export function toChangeProblem(result: ChangeResult): ApiResponse {
  if (result === 'version_mismatch')
    return toProblem('precondition_failed', 'the endpoint was changed meanwhile: get it again, and repeat the change');
  return toUnknownEndpoint();
}

/** The version that a change requires; undefined if it requires none. */
export function readIfMatch({ incoming }: Pick<ApiRequest<unknown, unknown>, 'incoming'>): number | undefined | ApiResponse {
  const given = incoming.headers['if-match'];
  if (given === undefined || given === '*') return undefined;
  const version = /^"(\d{1,15})"$/.exec(given)?.[1];
  return version === undefined
    ? toProblem('precondition_failed', 'If-Match is not the ETag of an endpoint: get it again, and repeat the change')
    : Number(version);
}

async function changeSettings(
  request: ApiRequest<unknown, unknown>,
  change: (settings: EndpointSettings) => EndpointSettings,
  parts: OperationParts,
): Promise<ApiResponse> {
  const id = request.params['endpoint'] ?? '';
  const { registry, rules, clock, hooks } = parts;
  const problem = findChangeProblem(id, parts);
  if (problem !== undefined) return problem;
  const version = readIfMatch(request);
  if (typeof version === 'object') return version;
  let errors: readonly FieldError[] = [];
  const result = await registry.update(
    id,
    (record): EndpointRecord | undefined => {
      const settings = change(record.settings);
      errors = findSettingErrors(settings, rules);
      return errors.length > 0 ? undefined : { ...record, settings, updatedAt: clock.now() };
    },
    version,
  );
  if (errors.length > 0) return toInvalid(errors);
  const endpoint = registry.get(id);
  if (result !== 'changed' || endpoint === undefined) return toChangeProblem(result);
  hooks.onEndpointChanged(id, 'updated');
  return toEndpointResponse(200, endpoint, parts);
}

function mergePatch(settings: EndpointSettings, patch: EndpointPatch): EndpointSettings {
  const changes = Object.entries(patch).map(([name, value]) => [name, value ?? undefined]);
  return { ...settings, ...(Object.fromEntries(changes) as Partial<EndpointSettings>) };
}

function findSettingErrors({ url, headers }: EndpointSettings, rules: EndpointRules): FieldError[] {
  const found = { url: rules.findUrlProblem(url), headers: rules.findHeaderProblem(Object.entries(headers)) };
  return Object.entries(found).flatMap(([field, problem]) =>
    problem === undefined ? [] : [{ field, message: `${problem.problem}; ${problem.hint}` }],
  );
}

function createEndpointId(): string {
  return `ep_${randomBytes(RANDOM_ID_BYTES).toString('hex')}`;
}

/** A key of a request, or the response that rejects it. */
export function toKey(secret: string | undefined, rules: EndpointRules): NewKey | ApiResponse {
  const key = secret === undefined ? rules.createSecret() : rules.parseSecret(secret);
  return 'problem' in key ? toInvalid([{ field: 'secret', message: `${key.problem}; ${key.hint}` }]) : key;
}
