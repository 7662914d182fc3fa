-- The health of a Queue or a Counter, for Argo CD: what its conditions say, as kstatus reads them.
--
-- Argo CD runs this with the resource as `obj` (resource.customizations.health.headgate.io_Queue, and _Counter;
-- kustomization.yaml beside this file makes both keys). It needs no library. docs/reference.md has all reasons.

local conditions = {}
if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, condition in ipairs(obj.status.conditions) do
    conditions[condition.type] = condition
  end
end

local function is_true(type)
  return conditions[type] ~= nil and conditions[type].status == "True"
end

local function told(condition)
  return condition.reason .. ": " .. condition.message
end

-- What does not enter Ready, since a nightly job that failed is no failed rollout, is told all the same.
local function remarks()
  local text = ""
  for _, type in ipairs({ "LanesHealthy", "RepairHealthy", "BulkReady", "CollectionHealthy" }) do
    if conditions[type] ~= nil and conditions[type].status == "False" then
      text = text .. " " .. told(conditions[type])
    end
  end
  return text
end

local ready = conditions["Ready"]

if obj.metadata.deletionTimestamp ~= nil then
  local message = "It is being deleted."
  if ready ~= nil and ready.reason == "Deleting" then
    message = told(ready)
  end
  return { status = "Progressing", message = message }
end
if ready == nil then
  return { status = "Progressing", message = "The operator has not seen it yet." }
end
if obj.status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "The operator has not seen this change yet." }
end
if is_true("Stalled") then
  return { status = "Degraded", message = told(conditions["Stalled"]) }
end
if is_true("Reconciling") then
  return { status = "Progressing", message = told(conditions["Reconciling"]) }
end
if ready.status == "True" then
  return { status = "Healthy", message = told(ready) .. remarks() }
end
if ready.reason == "Paused" then
  return { status = "Suspended", message = told(ready) }
end
if ready.status == "False" then
  return { status = "Degraded", message = told(ready) }
end
return { status = "Progressing", message = told(ready) }
